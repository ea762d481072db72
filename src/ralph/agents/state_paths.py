"""What each agent program needs outside of the workspace: the files in the user's home, and the hosts of its model.

An agent gets a private directory for its state. In it, the user's conversations stay writable, so that they can be continued.
What starts programs or steers a model is read-only. Credentials are copied in, and copied back if the agent renews them. Agents
replace such files by renaming, which a mounted file does not allow, so a mount would not do. The hosts count at the level
`strict` only.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True)
class StatePaths:
    """The state of one agent program.

    A path starts with `~/` for the home directory, with `config:`, `data:`, `state:` or `cache:` for one of the XDG directories,
    or it is below the settings directory of the agent. The last part can be a pattern.
    """

    settings: tuple[str, str] = ("", "")
    """The variable that names the settings directory, and the default, relative to the home directory."""
    private: tuple[str, ...] = ()
    """Directories that each run has for itself, in the place of the user's."""
    shared: tuple[str, ...] = ()
    """The user's own, writable: conversations and logs."""
    read_only: tuple[str, ...] = ()
    """The user's settings."""
    credentials: tuple[str, ...] = ()
    """Files that are copied in before a turn, and back after it."""
    copied: tuple[str, ...] = ()
    """Files that are only copied in."""
    hosts: tuple[str, ...] = ()
    """The hosts that it calls for its model and to sign in."""

    def locate(self, path: str, environment: Mapping[str, str]) -> list[Path]:
        """The files that a path of this agent means; they may not exist, unless it is a pattern."""
        variable, default = self.settings
        home = Path(environment.get("HOME") or Path.home())
        return expand(path, environment, Path(environment.get(variable) or home / default))

    def expand(self, paths: Iterable[str], environment: Mapping[str, str]) -> list[Path]:
        """The existing files and directories among paths of this agent."""
        found = [one for path in paths for one in self.locate(path, environment)]
        return [path for path in found if os.path.lexists(path)]


_XDG = {
    "config:": ("XDG_CONFIG_HOME", ".config"),
    "data:": ("XDG_DATA_HOME", ".local/share"),
    "state:": ("XDG_STATE_HOME", ".local/state"),
    "cache:": ("XDG_CACHE_HOME", ".cache"),
}

STATE_PATHS: Mapping[str, StatePaths] = {
    "claude": StatePaths(
        settings=("CLAUDE_CONFIG_DIR", ".claude"),
        private=(".",),
        shared=("projects",),
        read_only=(
            *("settings.json", "settings.local.json", "CLAUDE.md", "agents", "commands", "skills", "plugins"),
            *("output-styles", "rules", "hooks", "~/.claude.json"),
        ),
        credentials=(".credentials.json",),
        hosts=("api.anthropic.com", "platform.claude.com", "console.anthropic.com", "claude.ai"),
    ),
    "amp": StatePaths(
        settings=("", ".local/share/amp"),
        private=(".",),
        shared=("threads",),
        read_only=("config:amp",),
        credentials=("secrets.json",),
        hosts=("ampcode.com", "*.ampcode.com"),
    ),
    "cursor": StatePaths(
        settings=("", ".config/cursor"),
        private=("~/.cursor", "."),
        shared=("~/.cursor/chats",),
        read_only=("~/.cursor/mcp.json", "~/.cursor/rules", "~/.cursor/hooks.json", "~/.cursor/skills"),
        credentials=("auth.json",),
        copied=("~/.cursor/cli-config.json",),
        hosts=("cursor.sh", "*.cursor.sh", "cursor.com", "*.cursor.com"),
    ),
    # Codex writes its own skills to `skills/.system`, so only the user's are read-only.
    "codex": StatePaths(
        settings=("CODEX_HOME", ".codex"),
        private=(".",),
        shared=("sessions",),
        read_only=("config.toml", "AGENTS.md", "prompts", "rules", "hooks.json", "skills/[!.]*"),
        credentials=("auth.json",),
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
    ),
    "gemini": StatePaths(
        private=("~/.gemini",),
        shared=("~/.gemini/tmp", "~/.gemini/history"),
        read_only=(
            *("~/.gemini/settings.json", "~/.gemini/GEMINI.md", "~/.gemini/extensions", "~/.gemini/commands"),
            *("~/.gemini/trustedFolders.json", "~/.gemini/.env", "~/.gemini/skills", "~/.gemini/agents"),
        ),
        credentials=("~/.gemini/oauth_creds.json", "~/.gemini/google_accounts.json"),
        hosts=("generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "oauth2.googleapis.com"),
    ),
    # Opencode keeps git repositories with hooks in `snapshot`, so that directory is not shared.
    "opencode": StatePaths(
        private=("config:opencode", "data:opencode/snapshot"),
        shared=("data:opencode", "state:opencode"),
        read_only=("config:opencode/*",),
        hosts=("opencode.ai", "*.opencode.ai", "models.dev"),
    ),
    "copilot": StatePaths(
        settings=("COPILOT_HOME", ".copilot"),
        private=(".",),
        shared=("session-state",),
        read_only=("mcp-config.json", "agents", "skills", "copilot-instructions.md", "config:gh"),
        copied=("config.json",),
        hosts=("api.github.com", "*.githubcopilot.com"),
    ),
    "goose": StatePaths(
        private=("config:goose",),
        shared=("data:goose", "state:goose"),
        read_only=("config:goose/*",),
    ),
    "qwen": StatePaths(
        settings=("QWEN_HOME", ".qwen"),
        private=(".",),
        shared=("projects",),
        read_only=("settings.json", "QWEN.md", "extensions", "commands", "skills", "agents", "trustedFolders.json"),
        credentials=("oauth_creds.json",),
        hosts=("chat.qwen.ai", "portal.qwen.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
    ),
    "pi": StatePaths(
        settings=("PI_CODING_AGENT_DIR", ".pi/agent"),
        private=(".",),
        shared=("sessions",),
        read_only=("settings.json", "models.json", "extensions", "skills", "prompts", "AGENTS.md"),
        credentials=("auth.json",),
    ),
    "cline": StatePaths(
        settings=("CLINE_DATA_DIR", ".cline/data"),
        private=(".",),
        shared=("tasks",),
        read_only=("settings",),
        credentials=("secrets.json",),
        copied=("globalState.json",),
        hosts=("api.cline.bot",),
    ),
    "aider": StatePaths(private=("~/.aider",), credentials=("~/.aider/oauth-keys.env",)),
    "mini": StatePaths(
        settings=("MSWEA_GLOBAL_CONFIG_DIR", ".config/mini-swe-agent"),
        private=(".",),
        read_only=("*.yaml",),
        copied=(".env",),
    ),
    "kiro": StatePaths(
        private=("~/.kiro",),
        shared=("data:kiro-cli", "~/.kiro/sessions"),
        read_only=("~/.kiro/settings", "~/.kiro/agents", "~/.kiro/steering", "~/.kiro/hooks"),
        hosts=("*.kiro.dev", "*.amazonaws.com"),
    ),
}
"""By the name of the agent."""

_PROVIDERS = {
    "ANTHROPIC_": "api.anthropic.com",
    "OPENAI_": "api.openai.com",
    "GEMINI_": "generativelanguage.googleapis.com",
    "GOOGLE_": "generativelanguage.googleapis.com",
    "OPENROUTER_": "openrouter.ai",
    "MISTRAL_": "api.mistral.ai",
    "GROQ_": "api.groq.com",
    "DEEPSEEK_": "api.deepseek.com",
    "XAI_": "api.x.ai",
}
"""The hosts of model providers, by how the names of their variables begin. An agent reaches those whose key the user sets."""
_ADDRESSES = (
    *("_BASE_URL", "_API_BASE", "OPENAI_HOST", "ANTHROPIC_HOST", "OLLAMA_HOST"),
    "AZURE_OPENAI_ENDPOINT",
)
"""Suffixes of variables that say where a model is."""

PROVEN = frozenset(
    ("claude", "codex", "gemini", "opencode", "copilot", "goose", "qwen", "pi", "cline", "aider", "mini")
)
"""The agents whose real programs were seen to do a whole run inside the sandbox (tests/real_agents)."""
PROVEN_BY_ACP = frozenset(("claude", "codex", "gemini", "opencode", "goose", "qwen", "copilot"))
"""The same for their programs that speak the Agent Client Protocol."""

_PROGRAMS = {"cursor-agent": "cursor", "kiro-cli": "kiro", "claude-agent-acp": "claude", "codex-acp": "codex"}
"""Programs that do not have the name of their agent."""

HOMES = (
    *("~/.claude", "~/.claude.json", "~/.codex", "~/.gemini", "config:opencode", "data:opencode", "state:opencode"),
    *("~/.copilot", "config:goose", "data:goose", "state:goose", "~/.qwen", "~/.pi", "~/.cline", "~/.aider"),
    *("config:mini-swe-agent", "~/.kiro", "data:kiro-cli", "data:amp", "config:amp", "config:cursor", "~/.cursor"),
)
"""The directories of all agents. A turn sees only those of its own agent."""

SECRETS = (
    *("~/.ssh", "~/.gnupg", "~/.aws", "~/.azure", "config:gcloud", "config:gh", "config:glab-cli", "~/.netrc"),
    *("~/.git-credentials", "config:git/credentials", "~/.docker", "~/.kube", "~/.password-store", "data:keyrings"),
    *("~/.pypirc", "~/.terraform.d", "config:op", "config:rclone", "config:hub", "~/.vault-token", "~/.pgpass"),
    *("~/.my.cnf", "~/.gem/credentials", "config:containers/auth.json", "config:github-copilot", "config:1Password"),
    *("config:Bitwarden", "config:Bitwarden CLI", "config:sops", "~/.s3cfg", "~/.boto", "~/.oci", "~/.fly", "~/.tsh"),
    *("config:stripe", "config:doctl", "config:heroku", "config:hcloud", "~/.databrickscfg", "~/.snowsql"),
    *("~/.cargo/credentials", "~/.cargo/credentials.toml", "config:pypoetry/auth.toml", "data:uv/credentials"),
    *("config:composer/auth.json", "~/.composer/auth.json", "~/.bundle/config", "~/.gem/*/credentials", "~/.authinfo*"),
    *("cache:huggingface/token", "cache:huggingface/stored_tokens", "~/.kaggle", "~/.config/ngrok", "~/.ngrok2"),
    *("config:netlify", "data:com.vercel.cli", "config:.wrangler", "~/.wrangler", "~/.railway", "~/.supabase"),
    *("~/.config/twine", "~/.subversion/auth", "~/.m2/settings-security.xml", "~/.nuget/NuGet/NuGet.Config"),
    *("~/.mozilla", "config:google-chrome*", "config:chromium", "config:BraveSoftware", "config:microsoft-edge*"),
    *("config:vivaldi*", "config:opera*", "~/snap/firefox", "~/snap/chromium", "~/.var/app/*", "~/.thunderbird"),
    *("config:Signal", "config:Slack", "config:discord", "data:TelegramDesktop", "~/.bash_history", "~/.zsh_history"),
    *("~/.psql_history", "~/.mysql_history", "~/.python_history", "~/.node_repl_history", "~/.local/share/fish"),
)
"""What no turn may read, unless its agent needs it."""
SETTINGS_WITH_TOKENS = ("~/.npmrc", "~/.yarnrc", "~/.yarnrc.yml", "~/.bunfig.toml")
"""Settings that package managers need, and that can contain tokens. Jobs see them without the lines that have one."""
SECRETS_OF_SYSTEM = ("etc/shadow*", "etc/gshadow*", "etc/sudoers*", "etc/ssh/*_key", "etc/ssl/private")
"""What an ordinary user could not read: if root starts Ralph, jobs have root's rights to read."""


def expand(path: str, environment: Mapping[str, str], settings: Path | None = None) -> list[Path]:
    """The files that a path of this module means; a pattern matches existing files only."""
    home = Path(environment.get("HOME") or Path.home())
    base = settings or home
    if path.startswith("~/"):
        base, path = home, path.removeprefix("~/")
    for prefix, (variable, default) in _XDG.items():
        if path.startswith(prefix):
            base, path = Path(environment.get(variable) or home / default), path.removeprefix(prefix)
    if any(sign in path for sign in "*["):
        return sorted(base.glob(path))
    return [base / path]


def expand_all(paths: Iterable[str], environment: Mapping[str, str]) -> list[Path]:
    """The existing files and directories that paths of this module mean."""
    found = [one for path in paths for one in expand(path, environment)]
    return [path for path in found if os.path.lexists(path)]


def find_hosts(paths: Iterable[StatePaths], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts that an agent may reach: its own, those of providers whose key is set, and those of addresses of models."""
    found = [host for one in paths for host in one.hosts]
    for name, value in environment.items():
        is_of_provider = name.startswith(tuple(_PROVIDERS))
        if is_of_provider and name.endswith(("_API_KEY", "_AUTH_TOKEN")):
            found.append(next(host for start, host in _PROVIDERS.items() if name.startswith(start)))
        elif name.endswith(_ADDRESSES) and value.startswith(("http://", "https://")):
            found += _host_of(value)
    return tuple(dict.fromkeys(found))


def _host_of(address: str) -> list[str]:
    """The host and the port of an address; nothing if it is wrong."""
    try:
        url = urlsplit(address)
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        return []
    return [f"[{url.hostname}]:{port}" if ":" in url.hostname else f"{url.hostname}:{port}"] if url.hostname else []


def find_named_state_paths(command: Iterable[str]) -> tuple[StatePaths, ...]:
    """The state of the known agents that the words of a command name, for example `opencode acp`."""
    return tuple(STATE_PATHS[name] for name in find_named_agents(command))


def find_named_agents(command: Iterable[str]) -> tuple[str, ...]:
    """The known agents that the words of a command name, also by the programs that speak ACP for them."""
    names = [os.path.basename(word) for word in command]
    known = [_PROGRAMS.get(name, name) for name in names]
    return tuple(name for name in dict.fromkeys(known) if name in STATE_PATHS)


def is_proven(kind: str, command: Iterable[str]) -> bool:
    """Whether an agent was seen to work inside the sandbox. Programs that the user names by a command need no state."""
    if kind == "acp":
        named = find_named_agents(command)
        return bool(named) and PROVEN_BY_ACP.issuperset(named)
    return kind in ("scripted", "command") or kind in PROVEN
