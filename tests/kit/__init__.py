"""What tests share.

- `world`: the World: one folder, a local workspace and a producer in which bots start and stop; `clarify.toml` for it;
  `question()` as a producer sends it; what messages say and which controls they have.
- `builders`: `ask()` and `record()`: questions and clarifications as the core has them, with defaults for what a test
  does not care about; `NOW`, `ADE`, `BEA`, `YES`; `closed()`, `news()`, `FOREIGN`.
- `clocks`: `ManualClock` stands still until `advance`; `LeapClock` is the time of day at any speed, and leaps, waking
  who sleeps.
- `processes`: `clarify(*words)` as a process of its own, forked from one that has imported the whole bot: it begins in
  hundredths of a second; `command()` runs one to its end. `forks()`: where else to start what needs the bot imported.
- `until`: `until(predicate)` for what has no event to wait for.
- `simulated`: an event loop whose time jumps to whatever is next, for days in seconds.
- `files`: files replaced at once, as by careful others.
"""
