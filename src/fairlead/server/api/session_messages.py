"""Messages of the REST API about sessions of browsers."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class NewSession(BaseModel):
    """A login with a token."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: Annotated[str, Field(min_length=1, max_length=16_384, repr=False)]


class SessionView(BaseModel):
    """The owner of the token that a request was sent with."""

    name: str
    role: str
    tenant: str | None
    sees: list[str]
    """other tenants whose jobs it may see"""
    scopes: list[str]
    """parts of the API that it may use; none: all that its role permits"""
    key: str | None = None
    """key of the new session, which the header Fairlead-Key of later requests holds"""
