"""Rows that the bot left in its storage, put there as they are."""

from __future__ import annotations

from typing import Any

from bot.storage.store import Store


async def put(store: Store, table: str, *rows: dict[str, Any], **common: Any) -> None:
    """Rows of `table`, at least one, with what they have in common; columns that are left out have their default."""
    for row in rows or ({},):
        full = common | row
        values = ", ".join(f":{name}" for name in full)
        await store.run(f"insert into {table} ({', '.join(full)}) values ({values})", **full)  # noqa: S608 - names of the tests


async def recorded(store: Store, name: str, **more: Any) -> None:
    """The row of an open clarification, that others refer to."""
    _, issue, number = name.split("-")
    row = {"id": name, "issue": int(issue), "number": int(number), "producer": "", "session": "", "live": 1}
    await put(
        store, "clarifications", **(row | {"closed": None, "revision": 1, "body": "{}", "written": 1} | more)
    )


async def message(store: Store, key: str, ts: str | None, **more: Any) -> None:
    """A message in C1, `ts` None: not posted; of the kind that its key begins with."""
    row = {"key": key, "kind": key.partition(":")[0], "target": "C1", "final": 1}
    await put(store, "messages", **(row | {"channel": "C1" if ts else None, "ts": ts} | more))


async def all_of(store: Store, sql: str) -> list[Any]:
    """The rows of a query as tuples; of one column, its values."""
    rows = [tuple(dict(row).values()) for row in await store.read(sql)]
    return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows
