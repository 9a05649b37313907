"""A producer that streams as fast as it can, minimal dialect: `python -m tests.bench.streaming PORT EVENTS`."""

from __future__ import annotations

import asyncio
import json
import sys

_CHUNK = 20  # events per write, as a fast model's tokens come bundled by the network


def _event(number: int, kind: str) -> dict[str, object]:
    return {
        "@context": "https://aaep-protocol.org/context/v1",
        "type": f"aaep:agent.{kind}",
        "event_id": f"evt_{number:016x}",
        "session_id": "sess_2c91a7b4d23f1e88",
        "sequence_number": number,
        "timestamp": "2026-05-24T14:22:23.140Z",
        "producer": {"agent_id": "retirement-planner", "agent_version": "1.4.2"},
        "urgency": "normal",
        "chunk": "Your retirement plan should target a monthly contribution of $1,200.",
        "position": number,
        "complete": False,
    }


def _chunks(events: int) -> list[bytes]:
    frames = [
        f"data: {json.dumps(_event(number, 'output.streaming'))}\n\n".encode() for number in range(events)
    ]
    frames.append(f"data: {json.dumps(_event(events, 'session.completed'))}\n\n".encode())
    bodies = [b"".join(frames[start : start + _CHUNK]) for start in range(0, len(frames), _CHUNK)]
    return [b"%x\r\n%b\r\n" % (len(body), body) for body in bodies]


async def _serve(port: int, events: int) -> None:
    chunks = _chunks(events)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            if not head.startswith(b"GET /events"):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            return
        finally:
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
