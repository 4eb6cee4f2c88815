"""Every way Rota can refuse or fail, in one tree.

RotaError
├── Invalid                what was sent cannot be                       422 (400 where it is not even JSON)
│   ├── InvalidField       one field of it: which, what is wrong, what to do
│   └── InvalidSchedule    a schedule nobody can follow
├── Unauthenticated        no key, or one that is not ours               401
├── Forbidden              the key may not do this                       403
├── NotFound               no such thing, or not yours                   404
├── Conflict               its state forbids it                          409
├── TooLarge               more than we take in one request              413
├── Superseded             another attempt has taken this one's place    (raised in tasks)
└── StoreError
    ├── StoreUnavailable   worth trying again                            503
    ├── SchemaMismatch     the database is of another version            500
    └── FolderInUse        another process has this data folder          (store/embedded.py)
"""

from __future__ import annotations


class RotaError(Exception):
    """Something Rota says no to, in a sentence for people."""


def quoted(text: str) -> str:
    """What somebody wrote, short enough to say it back to them."""
    return repr(text if len(text) <= 80 else text[:80] + "…")


class Invalid(RotaError):
    """What was sent cannot be."""


class InvalidField(Invalid):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InvalidSchedule(InvalidField):
    """A schedule that nobody can follow; `problem` says why and what to write instead."""


class Unauthenticated(RotaError):
    pass


class Forbidden(RotaError):
    pass


class NotFound(RotaError):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"There is no {kind} {quoted(name)} that this key may see.")
        self.kind = kind
        self.name = name


class Conflict(RotaError):
    pass


class TooLarge(RotaError):
    pass


class Superseded(RotaError):
    """This attempt no longer holds its execution: whatever it does now, another one does it again."""


class StoreError(RotaError):
    pass


class StoreUnavailable(StoreError):
    """The database did not answer, or not in time; what was asked may or may not have happened."""


class SchemaMismatch(StoreError):
    pass
