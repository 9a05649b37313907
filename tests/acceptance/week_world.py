"""A simulated week: agents ask, people answer, take, snooze and hand over, everything fails, clocks jump."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from bot.people.access import Person
from bot.settings.load import parse_settings, prepare_folders
from bot.slackapi import Place
from bot.views.codec import PagePress, PageVerb, Press, Verb
from bot.views.phrases import Reaction, Recorded, Tell
from core.answers import from_text
from core.approvals import version_of
from core.clarification import Clarification, Decider
from core.ledgerfiles import as_item
from core.transitions import NotOpen
from tests.acceptance.week_life import Current, Life, Setting, replace_parties
from tests.acceptance.week_parties import Outer, SlackMessage
from tests.acceptance.week_plan import (
    MINUTE,
    PEOPLE,
    TEAM,
    WEEK,
    Plan,
    Question,
    Restart,
    configuration,
)
from tests.acceptance.week_story import (
    Act,
    CardAct,
    Change,
    Story,
    WeekClock,
    ask_of,
    change_of,
    differs,
)

_ENVIRON = {
    "SLACK_BOT_TOKEN": "xoxb-week",
    "SLACK_APP_TOKEN": "xapp-week",
    "PAGER": "json://pager.invalid",
    "OTHER": "json://other.invalid",
}

# What people read when it was done.
_OWNED = {"take": ("You claimed",), "over": ("You claimed",), "letgo": ("is unclaimed", "You claimed")}
_DONE = {"take": "You claimed", "snooze": "Snoozed until", "notmine": "Passed on", "hand": "is being paged"}


class World:
    def __init__(self, plan: Plan, folder: Path, patch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.plan, self.folder, self._loop = plan, folder, loop
        self.clock = WeekClock(plan.beginning)
        self.outer = Outer(plan, loop.time)
        self.outer.landed = self._landed
        self.story = Story()
        self._own: set[asyncio.Task[Any]] = {task for task in (asyncio.current_task(),) if task is not None}
        settings = parse_settings(configuration(), file=folder / "clarify.toml", environ=_ENVIRON)
        prepare_folders(settings)
        self.storage = settings.storage.path
        self.current = current = Current()
        self._setting = Setting(settings, self.clock, self.outer, self._written, self._own, current)
        replace_parties(patch, self.outer, current, folder)
        self._life: Life | None = None
        self._up = asyncio.Event()
        self._last: dict[str, Change] = {}
        self._by_id: dict[str, Question] = {}
        self._failures: list[BaseException] = []

    async def run(self) -> None:
        """The whole week."""
        await self._start()
        works = (self._ask_all(), self._jump_all(), self._restart_all())
        for each in works:
            self._spawn(each)
        while self._loop.time() < WEEK:
            await asyncio.sleep(10 * MINUTE)
            if self._failures:
                raise self._failures[0]
            if self._life is not None and self._life.is_up:
                self._life.check()
        life = await self._there()
        await life.stop()
        await self._bury(life)
        for task in list(self._own - {asyncio.current_task()}):
            task.cancel()

    def asked(self, clarification: str) -> Question:
        """What the agent asked with it."""
        return self._by_id[clarification]

    async def _start(self) -> None:
        while True:
            self._life = life = Life(self._setting)
            await life.start()
            if life.is_up:
                break
            await self._bury(life)
        self._up.set()

    async def _bury(self, life: Life) -> None:
        self._up.clear()
        await life.bury()
        self.story.lives.append((life.began, life.ended or self._loop.time()))

    async def _there(self) -> Life:
        await self._up.wait()
        assert self._life is not None
        return self._life

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._own.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._own.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failures.append(error)

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._loop.time()))

    async def _restart_all(self) -> None:
        for restart in self.plan.restarts:
            await self._until(restart.at)
            await self._restart(restart)

    async def _restart(self, restart: Restart) -> None:
        life = await self._there()
        if restart.fuse is None:
            await life.stop()
        else:
            life.light(restart.fuse)
            try:
                async with asyncio.timeout(5 * MINUTE):
                    await life.dead.wait()
            except TimeoutError:
                life.die()
        await self._bury(life)
        await asyncio.sleep(restart.down)
        await self._start()

    async def _jump_all(self) -> None:
        for jump in self.plan.jumps:
            await self._until(jump.at)
            self.clock.jump(jump.by)
            self.story.jumps.append((self._loop.time(), jump.by))

    async def _ask_all(self) -> None:
        for question in self.plan.questions:
            await self._until(question.at)
            self._spawn(self._ask(question))

    async def _ask(self, question: Question) -> None:
        """Until it is written down, as a producer sends it again until it was taken."""
        record = await self._asked(question, 1)
        self._by_id[record.id] = question
        if question.by_hand is not None:
            self._spawn(self._escalate(record, question.by_hand))
        for after, user, verb in question.presses:
            self._spawn(self._press(record.id, user, verb, after))
        if question.answer is None or question.needs:
            return
        await asyncio.sleep(question.answer)
        answered = await self._answer(record.id, "U0ANSWERER")
        if answered is None or answered.status != "answered":
            return
        if not question.asks_again:
            await self._resolve(record.id)
            return
        await asyncio.sleep(3 * MINUTE)
        await self._asked(question, 2)
        await asyncio.sleep(question.answer)
        if (again := await self._answer(record.id, "U0ANSWERER")) is not None and again.status == "answered":
            await self._resolve(record.id)

    async def _asked(self, question: Question, number: int) -> Clarification:
        while True:
            life = await self._there()
            opened = await life.do(self._open(life, question, number))
            if opened is not None:
                return opened
            await asyncio.sleep(1)

    async def _open(self, life: Life, question: Question, number: int) -> Clarification:
        await life.store.run(
            """insert into sessions (producer, session_id, agent_id) values ('planner', :session, :agent)
               on conflict (producer, session_id) do nothing""",
            session=question.session,
            agent=question.agent,
        )
        ask = ask_of(question, number, self.clock.now())
        return (await life.bot.base.router.open(question.issue, ask)).record

    async def _press(self, clarification: str, user: str, verb: str, after: float = 0.0) -> None:
        """A control of its card, until something comes of it."""
        await asyncio.sleep(after)
        reaction = None
        while reaction is None:
            life, began = await self._there(), self._loop.time()
            reaction = await life.do(self._pressed(life, clarification, user, verb))
            confirmed = isinstance(reaction, Recorded) or (
                isinstance(reaction, Tell) and reaction.text.startswith(_OWNED.get(verb, ()))
            )
            act = CardAct(began, self._loop.time(), user, verb, clarification, confirmed)
            self.story.card_acts.append(act)

    async def _pressed(self, life: Life, clarification: str, user: str, verb: str) -> Reaction:
        record = await life.bot.slack.app.handlers.answering.ledger.find(clarification)
        arg = {"over": "over", "accept": version_of(record.current), "reject": version_of(record.current)}
        press = Press(
            "take" if verb == "over" else cast("Verb", verb), record.id, record.round, arg.get(verb, "")
        )
        return await life.bot.slack.app.handlers.answering.press(press, Person(TEAM, user), Place("C0LONE"))

    async def _answer(self, clarification: str, user: str) -> Clarification | None:
        """None: somebody was first, or it is closed."""

        def read(record: Clarification) -> Any:
            return from_text(record.asked, f"Use the {user} way.")

        while True:
            life = await self._there()
            who, at = Decider(f"user:slack/{TEAM}/{user}", "slack", TEAM, user), self.clock.now()
            try:
                record = await life.do(life.bot.base.router.answer(clarification, read, who, at))
            except NotOpen:
                return None
            if record is not None:
                return record

    async def _resolve(self, clarification: str) -> None:
        while True:
            life, at = await self._there(), self.clock.now()
            who = Decider("user:slack/T/U", "slack", TEAM, "U0ANSWERER")
            try:
                done = life.bot.base.router.resolve(
                    clarification, lambda r: from_text(r.asked, "Done."), "Done.", who, at
                )
                if await life.do(done) is not None:
                    return
            except NotOpen:
                return

    async def _escalate(self, record: Clarification, after: float) -> None:
        await asyncio.sleep(after)
        life = await self._there()
        try:
            await life.do(life.bot.base.router.escalate(record.id, "by hand"))
        except NotOpen:
            return

    def _written(self, body: str) -> None:
        now = change_of(as_item(json.loads(body)), self._loop.time(), self.clock.now())
        before = self._last.get(now.id)
        if before is None or differs(before, now):
            self._last[now.id] = now
            self.story.changes.setdefault(now.id, []).append(now)

    def _landed(self, post: SlackMessage) -> None:
        """Whom it reaches may do something about it."""
        if not post.key.startswith("page:"):
            return
        draw = self.plan.draw
        user = post.owner or PEOPLE[int(draw("who", post.key) * len(PEOPLE))]
        what = draw("what", post.key)
        after = 2 + 10 * MINUTE * draw("when", post.key) ** 2
        if what < 0.42:
            self._spawn(self._act(user, post, what / 0.42, after))
        elif post.owner is not None and draw("talk", post.key) < 0.2:
            self._spawn(self._talk(post.owner, post, after))

    async def _there_now(self, post: SlackMessage) -> SlackMessage | None:
        """What somebody finds who looks for a page: it, or what repeats it; None: nothing."""
        if self.outer.seen_lately(post):
            return post
        about = await self._about(post)
        for other in self.outer.messages(post.channel):
            if other.key.startswith("page:") and about & await self._about(other):
                return other
        return None

    async def _about(self, post: SlackMessage) -> set[int]:
        life = await self._there()
        found = await life.do(life.bot.board.pages.incidents_of(int(post.key.split(":")[1])))
        return {incident.id for incident in found or ()}

    def _saw(self, life: Life, user: str, post: SlackMessage) -> None:
        """As the bot is told of a click or a reply in somebody's direct messages."""
        if post.owner == user and life.is_up:
            self.story.active.setdefault(user, []).append(self._loop.time())
            life.bot.slack.app.handlers.interactions.seen(post.channel)

    async def _talk(self, user: str, post: SlackMessage, after: float) -> None:
        """Somebody says something in the thread of a page, which is no answer."""
        await asyncio.sleep(after)
        if self.outer.seen_lately(post) and post.spot not in self.outer.deleted:
            self.outer.replies.setdefault(post.spot, []).append(self._loop.time())
            self._saw(await self._there(), user, post)

    async def _act(self, user: str, landed: SlackMessage, what: float, after: float) -> None:
        await asyncio.sleep(after)
        post = await self._there_now(landed)
        if post is None:
            return
        life, page = await self._there(), int(post.key.split(":")[1])
        self._saw(life, user, post)
        if what < 0.25:
            await self._answer_page(life, user, page)
            return
        verb: PageVerb = (
            "take" if what < 0.6 else "snooze" if what < 0.75 else "notmine" if what < 0.88 else "hand"
        )
        press, began = PagePress(verb, page, 0), self._loop.time()
        person = Person(TEAM, user)
        if verb == "hand":
            to = PEOPLE[int(self.plan.draw("to", page, user) * len(PEOPLE))]
            reaction = await life.do(life.bot.oncall.page_actions.submit_hand(press, to, person))
        else:
            reaction = await life.do(life.bot.oncall.page_actions.press(press, person))
        confirmed = isinstance(reaction, Tell) and _DONE[verb] in reaction.text
        self.story.acts.append(Act(began, self._loop.time(), user, verb, page, confirmed))
        if verb == "take" and confirmed and self.plan.draw("then", page, user) < 0.5:
            await asyncio.sleep(8 * MINUTE * self.plan.draw("answers", page, user))
            life = await self._there()
            self._saw(life, user, post)
            await self._answer_page(life, user, page)

    async def _answer_page(self, life: Life, user: str, page: int) -> None:
        """Of what the page is about, answer what is not meant to stay unanswered."""
        for incident in await life.do(life.bot.board.pages.incidents_of(page)) or ():
            question = self._by_id.get(incident.clarification or "")
            if not incident.is_open or question is None or question.fate == "never":
                continue
            if question.needs:
                await self._press(incident.clarification or "", user, "accept")
            else:
                await self._answer(incident.clarification or "", user)
