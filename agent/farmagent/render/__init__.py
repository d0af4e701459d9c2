"""POST /render: one page driven by the agent itself, from a checked request to a bounded answer.

The rule: a job ends within its ``timeout_s``, reaches only the targets its policy allows, and leaves no page.
"""

from farmagent.render.answers import RenderAnswer
from farmagent.render.jobs import render
from farmagent.render.targets import TargetPolicy

__all__ = ["RenderAnswer", "TargetPolicy", "render"]
