"""Configuration and environment: read here and nowhere else."""

from bot.settings.environment import os_identity, read_environment
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
from bot.settings.responders import ResponderSettings

__all__ = [
    "DEFAULT_FILE",
    "HttpSettings",
    "LedgerSettings",
    "MonitorSettings",
    "OnCallSettings",
    "PacingSettings",
    "ProducerSettings",
    "ResponderSettings",
    "RotationSettings",
    "RouteSettings",
    "Secrets",
    "Settings",
    "SlackSettings",
    "StepSettings",
    "StorageSettings",
    "load_settings",
    "os_identity",
    "parse_settings",
    "prepare_folders",
    "read_environment",
]
