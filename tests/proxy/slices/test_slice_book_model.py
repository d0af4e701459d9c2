"""SliceBook against a model that keeps every slice with its turn and works everything out anew."""

import msgspec
from farmproxy.kube.endpoint_slices import EndpointSlice, host_port
from farmproxy.kube.messages import decode_slice
from farmproxy.kube.slice_sets import SliceBook
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

UIDS = ["P1", "P2", "P3", None]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "fd00::1", ""]
TRUTH = st.sampled_from([True, False, None])
ENDPOINTS = st.fixed_dictionaries(
    {
        "addresses": st.one_of(st.none(), st.lists(st.sampled_from(ADDRESSES), max_size=2)),
        "conditions": st.one_of(st.none(), st.fixed_dictionaries({"ready": TRUTH, "terminating": TRUTH})),
        "targetRef": st.one_of(st.none(), st.fixed_dictionaries({"uid": st.sampled_from(UIDS)})),
    }
)
PORTS = st.sampled_from(
    [None, [], [{"name": "cdp", "port": 9222}], [{"name": "cdp", "port": 1}], [{"name": "x"}]]
)
BODIES = st.fixed_dictionaries(
    {
        "endpoints": st.one_of(st.none(), st.lists(ENDPOINTS, max_size=4)),
        "ports": st.one_of(st.just([{"name": "cdp", "port": 9222}]), PORTS),
        "addressType": st.sampled_from(["IPv4", "IPv4", "IPv6", "FQDN", None]),
    }
)
NAMES = st.sampled_from(["s1", "s2", "s3"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("changed"), NAMES, BODIES),
        st.tuples(st.just("deleted"), NAMES, st.none()),
        st.tuples(st.just("listed"), st.none(), st.dictionaries(NAMES, BODIES)),
    ),
    max_size=8,
)


class Model:
    def __init__(self):
        self.slices = {}
        self.turn = 0

    def step(self, verb, name, body):
        self.turn += 1
        if verb == "listed":
            self.slices = {each: (self.turn, raw) for each, raw in body.items()}
        elif verb == "changed":
            self.slices[name] = (self.turn, body)
        else:
            self.slices.pop(name, None)

    def words(self):
        """Every (key, turn, slice, address, port, ready, terminating) there is."""
        for name, (turn, body) in self.slices.items():
            port = next((p.get("port") for p in body["ports"] or [] if p["name"] == "cdp"), None)
            if not port or body["addressType"] == "FQDN":
                continue
            for endpoint in body["endpoints"] or []:
                if not endpoint["addresses"] or not endpoint["addresses"][0]:
                    continue
                address = endpoint["addresses"][0]
                key = (endpoint["targetRef"] or {}).get("uid") or host_port(address, port)
                said = endpoint["conditions"] or {}
                yield (
                    key,
                    turn,
                    name,
                    address,
                    port,
                    said.get("ready") is not False,
                    bool(said.get("terminating")),
                )

    def pods(self):
        by_key = {}
        for key, *word in self.words():
            by_key.setdefault(key, []).append(word)
        found = {}
        for key, words in by_key.items():
            latest = max(turn for turn, *_ in words)
            ready = all(word[4] for word in words if word[0] == latest)
            terminating = any(word[5] for word in words if word[0] == latest)
            first_words = {}
            for word in words:  # inside one slice the first address stands
                first_words.setdefault(word[1], word)
            _, _, address, port, *_ = min(first_words.values(), key=lambda w: (":" in w[2], -w[0], w[1]))
            found[key] = (address, port, ready, terminating)
        return found

    def ready_in(self, key):
        """Slice name to whether it calls the pod ready."""
        found = {}
        for each, _, name, _, _, ready, _ in self.words():
            if each == key:
                found[name] = found.get(name, True) and ready
        return found


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_the_book_and_the_model_agree(steps):
    book, model, told = SliceBook("default", "cdp"), Model(), {}
    for verb, name, body in steps:
        before = {key: model.ready_in(key) for key in model.pods()}
        model.step(verb, name, body)
        if verb == "listed":
            change = book.listed(slice_of(each, raw) for each, raw in body.items())
        else:
            change = book.deleted(name) if verb == "deleted" else book.changed(slice_of(name, body))
        pods = model.pods()
        for seen in change.seen:
            now = (seen.address, seen.port, seen.ready, seen.terminating)
            assert told.get(seen.key) != now or seen.fresh_ready, "told what was known"
            told[seen.key] = now
            flipped = (
                verb == "changed"
                and model.ready_in(seen.key).get(name)
                and (before.get(seen.key, {}).get(name) is False)
            )
            assert seen.fresh_ready is bool(flipped)
        for key in change.gone:
            del told[key]
        assert told == pods


def slice_of(name, body):
    return convert({"metadata": {"name": name}, **body}, EndpointSlice)


JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 70000), st.text(max_size=5), st.sampled_from(["cdp", "s1"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "name",
                    "addressType",
                    "endpoints",
                    "ports",
                    "port",
                    "protocol",
                    "addresses",
                    "conditions",
                    "ready",
                    "targetRef",
                    "uid",
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(JUNK, max_size=4))
def test_a_slice_of_any_shape_is_folded_or_refused_by_the_decoder(junk):
    book = SliceBook("default", "cdp")
    for each in junk:
        try:
            seen = decode_slice(msgspec.json.encode(each))
        except msgspec.DecodeError:
            continue
        for change in (book.changed(seen), book.listed([seen]), book.deleted(seen.name)):
            assert all(0 < pod.port < 65536 and pod.address for pod in change.seen)
