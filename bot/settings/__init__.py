"""Configuration and environment: read here and nowhere else."""

from bot.settings.environment import read_environment
from bot.settings.load import DEFAULT_FILE, load_settings, parse_settings, prepare_folders
from bot.settings.model import (
    HttpSettings,
    LedgerSettings,
    PacingSettings,
    ProducerSettings,
    RouteSettings,
    Secrets,
    Settings,
    SlackSettings,
    StorageSettings,
)
from bot.settings.monitor import MonitorSettings
from bot.settings.oncall import OnCallSettings, RotationSettings, StepSettings

__all__ = [
    "DEFAULT_FILE",
    "HttpSettings",
    "LedgerSettings",
    "MonitorSettings",
    "OnCallSettings",
    "PacingSettings",
    "ProducerSettings",
    "RotationSettings",
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
