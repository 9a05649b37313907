"""`files.getUploadURLExternal` and `files.completeUploadExternal`; the bytes go to `/upload/{ticket}` in between.

Source: docs.slack.dev, "Working with files" and the methods' pages.
"""

from __future__ import annotations

from bot.workspace.payloads import file_json
from bot.workspace.state import File, Json, Message

from .base import ApiError, Args, Caller, Method, Office

MOST_BYTES = 5 * 1024 * 1024  # ours; Slack takes a gigabyte
ALT_MOST = 1000


async def get_upload_url(office: Office, caller: Caller, args: Args) -> Json:
    """A ticket for one file. Nobody sees the file before it is completed."""
    name, length = args.text("filename"), args.text("length")
    if not length.isdecimal() or not int(length):
        raise ApiError("invalid_arguments", messages=["must be a number above 0 [json-pointer:/length]"])
    if int(length) > MOST_BYTES:
        raise ApiError("file_upload_size_restricted")
    alt = args.text("alt_txt", "")
    if len(alt) > ALT_MOST:
        raise ApiError("alt_txt_too_large")
    state = office.context.state
    made = File(
        state.next_id("F"), name, name, alt, int(length), caller.user, int(state.clock()), state.next_id("up")
    )
    state.add_file(made)
    return {"upload_url": f"{state.team['url']}upload/{made.ticket}", "file_id": made.id}


async def complete_upload(office: Office, caller: Caller, args: Args) -> Json:
    """Give uploaded files their titles, and share them in one message where a channel is named."""
    chosen, draft = _chosen(office, caller, args), _draft(office, caller, args)
    for file, title in chosen:
        file.title, file.ticket = title, None
    if draft is not None:
        draft.files = [file.id for file, _ in chosen]
        office.board.post(office.channel(draft.channel, caller), draft)
    return {"files": [file_json(office.context.state, file) for file, _ in chosen]}


def _draft(office: Office, caller: Caller, args: Args) -> Message | None:
    """The message that shares the files, still without them; None where they stay the app's own."""
    channel_id = args.text("channel_id", "")
    if not channel_id:
        return None
    channel = office.channel(channel_id, caller)
    if caller.user not in channel.members:
        raise ApiError("not_in_channel")
    if channel.is_archived:
        raise ApiError("is_archived")
    thread = args.text("thread_ts", "") or None
    if thread is not None and (thread not in channel.messages or channel.messages[thread].thread_ts):
        raise ApiError("thread_not_found")
    return Message(
        channel.id,
        "",
        caller.user,
        args.text("initial_comment", ""),
        thread_ts=thread,
        subtype="file_share",
        bot_id=office.context.state.app.bot_id,
    )


def _chosen(office: Office, caller: Caller, args: Args) -> list[tuple[File, str]]:
    """Each file with its new title: all were uploaded, and none was completed before."""
    named = args.structure("files")
    if not isinstance(named, list) or not named:
        raise ApiError("invalid_arguments", messages=["missing required field: files"])
    chosen: list[tuple[File, str]] = []
    for each in named:
        file = office.context.state.files.get(str(each.get("id"))) if isinstance(each, dict) else None
        if file is None or file.user != caller.user or file.content is None or file.ticket is None:
            raise ApiError("file_not_found")
        chosen.append((file, str(each.get("title") or file.name)))
    return chosen


METHODS = {
    "files.getUploadURLExternal": Method(get_upload_url, "files:write", "tier4"),
    "files.completeUploadExternal": Method(complete_upload, "files:write", "tier4"),
}
