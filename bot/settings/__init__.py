"""Configuration and environment: read here and nowhere else."""

from bot.settings.environment import read_environment
from bot.settings.load import DEFAULT_FILE, load_settings, parse_settings, prepare_folders
from bot.settings.model import (
    HttpSettings,
    LedgerSettings,
    MonitorSettings,
    OnCallSettings,
    PacingSettings,
    ProducerSettings,
    RouteSettings,
    Secrets,
    Settings,
    SlackSettings,
    StepSettings,
    StorageSettings,
)

__all__ = [
    "DEFAULT_FILE",
    "HttpSettings",
    "LedgerSettings",
    "MonitorSettings",
    "OnCallSettings",
    "PacingSettings",
    "ProducerSettings",
    "RouteSettings",
    "Secrets",
    "Settings",
    "SlackSettings",
    "StepSettings",
    "StorageSettings",
    "load_settings",
    "parse_settings",
    "prepare_folders",
    "read_environment",
]
