"""Tell the model which skills there are, and what one says that the user names."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import msgspec

from ferrule.execpolicy import visible
from ferrule.history.compaction import user_message
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.settings import Settings, SkillSwitch
from ferrule.skills import BadSkill, Skill, SkillFile, read_skill, user_skills, without_doubles

MAX_LISTED = 100
"""Skills that the model is told of: nobody chooses well among more."""
LIST_BYTES = 8_000
"""Of their names, descriptions and paths together, as in Codex: they stand in every request."""
DESCRIPTION_STEPS = (1_024, 512, 256, 128, 64, 0)
"""Characters to which all descriptions are cut, until the list is short enough."""
INJECTED_BYTES = 32 << 10
"""Of a skill that the user names; the model reads the rest from its file."""
_MENTION = re.compile(r"\$([A-Za-z0-9_-]+)")

LISTED = """\
<skills_instructions>
## Skills

A skill is a folder with instructions for one kind of task; they stand in its `SKILL.md`. These are installed:

{}

Use a skill when the user names it (`$name`, or in words) or when the task is what its description says. Read its \
`SKILL.md` first, then of the other files only those that it names and the task needs; relative paths in it begin at \
its folder. Run scripts that it brings instead of writing your own. If it cannot be read, say so and go on without it.
</skills_instructions>"""
INJECTED = "<skill>\n<name>{}</name>\n<path>{}</path>\n{}\n</skill>"


class Installed(msgspec.Struct, frozen=True):
    """All skills of a session: those that are used, those that are switched off, and those that cannot be used."""

    used: tuple[Skill, ...] = ()
    off: tuple[Skill, ...] = ()
    bad: tuple[BadSkill, ...] = ()


def installed(settings: Settings) -> Installed:
    """Find the user's skills, then the project's; a project does not take the name of a skill of the user."""
    files = (SkillFile(text.path, text.data) for text in settings.project_skills)
    found = list(without_doubles([*user_skills(settings.home), *(read_skill(file, "project") for file in files)]))
    skills = [one for one in found if isinstance(one, Skill)]
    used = tuple(skill for skill in skills if _is_used(skill, settings))
    return Installed(
        used,
        tuple(skill for skill in skills if skill not in used),
        tuple(one for one in found if isinstance(one, BadSkill)),
    )


class Skills:
    """The skills of one session, looked for when they are first needed."""

    def __init__(self, settings: Settings, warn: Callable[[str], object]) -> None:
        self._settings = settings
        self._warn = warn

    @cached_property
    def used(self) -> tuple[Skill, ...]:
        """The skills that the model may use."""
        if not self._settings.skills.enabled:
            return ()
        found = installed(self._settings)
        for bad in found.bad:
            self._warn(f"skill {bad.path} {bad.text}; it is passed over")
        return found.used

    @cached_property
    def _list(self) -> str:
        lines, told = listed(self.used)
        if told:
            self._warn(told)
        return LISTED.format("\n".join(lines)) if lines else ""

    def opening(self) -> Iterator[ResponseItem]:
        """Yield the list, if there is any skill."""
        if self._list:
            yield user_message(self._list)

    def mentioned(self, text: str) -> Iterator[ResponseItem]:
        """Yield what each skill says that `text` names as `$NAME`."""
        names = dict.fromkeys(_MENTION.findall(text))
        for skill in self.used if names else ():
            if skill.name in names:
                yield user_message(INJECTED.format(skill.name, _in_line(skill.path), _bounded(skill)))


def listed(skills: Sequence[Skill]) -> tuple[list[str], str]:
    """Return a line for each skill, shortened until they fit, and what to tell the user of that; empty if they fit."""
    shown = skills[:MAX_LISTED]
    lines: list[str] = []
    for most in DESCRIPTION_STEPS:
        lines = [_listed(skill, most) for skill in shown]
        if _size(lines) <= LIST_BYTES:
            break
    while _size(lines) > LIST_BYTES:
        lines.pop()
    missing = [skill.name for skill in skills[len(lines) :]]
    if missing:
        lines.append(f"({len(missing)} more are installed and not listed; the user may name one.)")
        advice = "switch some off by [skills] in config.toml, or name one as $NAME in your prompt"
        return (
            lines,
            f"{len(missing)} of {len(skills)} skills are not listed for the model ({missing[0]}, ...): {advice}",
        )
    if most < max(DESCRIPTION_STEPS) and any(len(skill.description) > most for skill in shown):
        return lines, f"the descriptions of {len(skills)} skills are cut to {most} characters: there are too many"
    return lines, ""


def _listed(skill: Skill, most: int) -> str:
    description = skill.description if len(skill.description) <= most else skill.description[:most].rstrip() + "..."
    path = _in_line(skill.path)
    return f"- {skill.name}: {description} (file: {path})" if most else f"- {skill.name} (file: {path})"


def _in_line(path: str) -> str:
    """Return a path in one line: a folder's name must not look like a skill."""
    return visible(path, multiline=False)


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode(errors="replace")) + 1 for line in lines)


def _bounded(skill: Skill) -> str:
    data = skill.text.encode()
    if len(data) <= INJECTED_BYTES:
        return skill.text.strip()
    return f"{data[:INJECTED_BYTES].decode(errors='ignore')}\n\n(It goes on; read the rest from its file.)"


def _is_used(skill: Skill, settings: Settings) -> bool:
    switches = [switch for switch in settings.skills.config if _means(switch, skill)]
    return settings.skills.enabled and (not switches or switches[-1].enabled)


def _means(switch: SkillSwitch, skill: Skill) -> bool:
    if switch.path is not None:
        path = os.path.realpath(os.path.expanduser(switch.path))
        return path in (os.path.realpath(skill.path), os.path.dirname(os.path.realpath(skill.path)))
    return switch.name == skill.name
