"""Chrome's managed policy: what no caller may open or change, whatever it says over CDP.

The rule: a caller reaches neither the pod's files (file:) nor Chrome's own settings (chrome:), because a proxy
set there would outlive every reset over CDP. Images carry this file; elsewhere it is written where asked for.
"""

import json
from pathlib import Path

from farmagent.errors import AgentError

FILE_NAME = "farm.json"

POLICY: dict[str, object] = {
    "URLBlocklist": ["file://*", "chrome://*", "chrome-untrusted://*", "view-source:*", "devtools://*"],
    "BackgroundModeEnabled": False,
    "BrowserSignin": 0,
    "SyncDisabled": True,
    "PasswordManagerEnabled": False,
    "AutofillAddressEnabled": False,
    "AutofillCreditCardEnabled": False,
    "ExtensionInstallBlocklist": ["*"],
    "MetricsReportingEnabled": False,
    "SearchSuggestEnabled": False,
    "TranslateEnabled": False,
    "PromotionalTabsEnabled": False,
    "DefaultBrowserSettingEnabled": False,
    "ComponentUpdatesEnabled": False,
    "DomainReliabilityAllowed": False,
    "NetworkPredictionOptions": 2,
}


def text() -> str:
    return json.dumps(POLICY, indent=2) + "\n"


def write(directory: Path) -> Path:
    """Write (or replace) the policy file. Raises AgentError."""
    path = directory / FILE_NAME
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.write_text(text())
        path.chmod(0o644)
    except OSError as error:
        raise AgentError(
            f"the managed policy cannot be written to {path}: {error}; run the agent as root, or bake the file "
            "into the image and leave FARMAGENT_POLICY_DIR empty"
        ) from error
    return path
