import json

import pytest

from farmctl.errors import StageError
from farmctl.testbeds.kind import existing
from farmctl.testbeds.kind.existing import WantedInstall
from farmctl.testbeds.kind.shapes import Shape
from farmctl.testbeds.kind.state import Installed


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
        ("services/proxy", "services", "", "proxy"),
    ],
)
def test_reviews_ask_by_group_and_resource(kind, resource, group, subresource):
    asked = existing.attributes(kind, "get", "farm")
    assert (asked["resource"], asked["group"], asked.get("subresource")) == (resource, group, subresource)


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
