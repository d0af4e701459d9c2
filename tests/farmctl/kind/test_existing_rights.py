import json

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind import existing
from farmctl.testbeds.kind.cluster.cluster_spec import Shape
from farmctl.testbeds.kind.cluster.state import Installed
from farmctl.testbeds.kind.existing import WantedInstall


class Judge:
    """An API server that allows what ``allows`` says of a review."""

    context = "theirs"

    def __init__(self, allows):
        self.allows = allows

    def __call__(self, *words, stdin="", **_):
        reviews = json.loads(stdin)["items"]
        answers = [
            {**each, "status": {"allowed": self.allows(each["spec"]["resourceAttributes"])}}
            for each in reviews
        ]
        return "\n".join(json.dumps(each) for each in answers)


def test_every_right_that_is_missing_is_named():
    judge = Judge(lambda asked: not (asked["resource"] == "roles" and asked["verb"] in {"create", "patch"}))
    with pytest.raises(StageError, match="missing rights in namespace farm") as caught:
        existing.refuse_missing_rights(judge, "farm")
    assert "create, patch roles" in str(caught.value)
    assert "deployments" not in str(caught.value)
    assert caught.value.exit_code == 3
    assert "auth can-i" in caught.value.hint


def test_all_rights_are_enough():
    existing.refuse_missing_rights(Judge(lambda _: True), "farm")


@pytest.mark.parametrize(
    ("kind", "resource", "group", "subresource"),
    [
        ("deployments.apps", "deployments", "apps", None),
        ("networkpolicies.networking.k8s.io", "networkpolicies", "networking.k8s.io", None),
        ("services", "services", "", None),
        ("pods/portforward", "pods", "", "portforward"),
    ],
)
def test_reviews_ask_by_group_and_resource(kind, resource, group, subresource):
    asked = existing.attributes(kind, "get", "farm")
    assert (asked["resource"], asked["group"], asked.get("subresource")) == (resource, group, subresource)


def asked(*, own_namespace):
    """(verb, resource) of everything that is asked for."""
    items = existing.reviews("farm", own_namespace=own_namespace)["items"]
    said = [each["spec"]["resourceAttributes"] for each in items]
    return {
        (each["verb"], "/".join(filter(None, (each["resource"], each.get("subresource"))))) for each in said
    }


@pytest.mark.parametrize(
    "right",
    [
        ("create", "pods/portforward"),  # the only way to the door
        ("list", "replicasets"),  # which pods are of the newest revision
        ("watch", "pods"),  # a removal waits for them
        ("get", "pods/log"),
        ("list", "events"),
        ("watch", "endpointslices"),  # nobody may grant the proxy what he may not do himself
    ],
)
def test_rights_are_asked_before_anything_is_put_in(right):
    assert right in asked(own_namespace=False)
    judge = Judge(lambda said: said["verb"] != right[0] or right[1].partition("/")[0] != said["resource"])
    with pytest.raises(StageError, match=rf"{right[0]}.* {right[1]}"):
        existing.refuse_missing_rights(judge, "farm", own_namespace=False)


def test_a_namespace_of_ones_own_takes_the_rights_to_make_and_remove_it():
    more = asked(own_namespace=True) - asked(own_namespace=False)
    assert {verb for verb, resource in more if resource == "namespaces"} == {
        "get",
        "create",
        "patch",
        "delete",
    }
    assert ("list", "persistentvolumeclaims") in more  # it is not removed with somebody's data in it


class Door:
    def __init__(self, said):
        self.said = said

    def page(self, url):
        assert url.startswith("http://kubernetes.default.svc")
        return self.said


@pytest.mark.parametrize(
    "said", ["page-failed: net::ERR_NAME_NOT_RESOLVED at http://x/", "not-settled: not within 10 s"]
)
def test_a_farm_whose_pods_resolve_no_names_does_not_stand(said):
    with pytest.raises(StageError, match="resolves no names") as caught:
        existing.check_names(Door(said), print)
    assert "NetworkPolicy" in caught.value.hint


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("refused-target: kubernetes.default.svc:80 is a private address", "a pod resolves names"),
        ("page-failed: net::ERR_CONNECTION_REFUSED", "a pod resolves names"),
        ("hold-timeout: no pod turned free", "whether pods resolve names was not asked: all are in use"),
    ],
)
def test_a_name_that_leads_nowhere_public_was_resolved_all_the_same(said, told):
    heard = []
    existing.check_names(Door(said), heard.append)
    assert heard == [told]


def test_what_is_not_asked_for_again_stays_as_it_is():
    first = WantedInstall(context="theirs", pull_secret="registry", architectures=("arm64",), restricted=True)
    there = first.over(Installed(phase="installing"))
    again = WantedInstall(context="theirs", pods=2).over(there)
    assert (again.pull_secret, again.architectures, again.restricted, again.pods) == (
        "registry",
        ("arm64",),
        True,
        2,
    )


WANTED = WantedInstall(context="theirs")


@pytest.mark.parametrize(
    "there",
    [
        Installed(phase="up", shape=Shape(node_image="x")),
        Installed(phase="up", context="another"),
        Installed(phase="up", context="theirs", namespace="elsewhere"),
    ],
)
def test_one_farm_at_a_time(there):
    with pytest.raises(StageError) as caught:
        existing.refuse_other(there, WANTED)
    assert caught.value.hint == "farmctl down first"


def test_same_farm_again_is_fine():
    existing.refuse_other(None, WANTED)
    existing.refuse_other(Installed(phase="installing", context="theirs"), WANTED)


def test_cluster_that_is_no_kind_cluster_has_to_pull():
    with pytest.raises(StageError, match="has to pull") as caught:
        existing.ensure_images(WANTED, {"proxy": "docker.io/library/farm-proxy:abc"}, None, print)
    assert "--image-prefix" in caught.value.hint
    assert "farm-proxy:abc" in caught.value.hint


def test_prefix_names_the_images():
    names = existing.image_names(WantedInstall(context="theirs", image_prefix="reg.example:5000/team/"))
    assert names["proxy"].startswith("reg.example:5000/team/farm-proxy:")
    assert existing.image_names(WANTED)["browser"].startswith("docker.io/library/farm-browser:")
