"""The pod's state diagram as mermaid text, from the table itself, so that the page cannot go stale."""

from farmproxy.core.pods import TABLE, PodState


def state_diagram() -> str:
    """A ``stateDiagram-v2`` with one arrow an edge of the table, in the table's order."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {_node(state)}: {state}" for state in PodState]
    lines += [f"    {_node(start)} --> {_node(end)}: {why}" for (start, end), why in TABLE.items()]
    return "\n".join(lines) + "\n"


def _node(state: PodState | None) -> str:
    return "[*]" if state is None else state.name.lower()
