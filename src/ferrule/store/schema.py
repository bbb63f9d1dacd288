"""The tables, and the numbered migrations that make them.

A migration that was released never changes; the next one goes to the end. `PRAGMA user_version` counts those applied.
"""

from sqlalchemy import BigInteger, Boolean, Integer, LargeBinary, Text, column, table

APPLICATION_ID = 0x46524C53
"""Marks our files ("FRLS"), so that the database of another program is never taken for one."""

responses = table(
    "responses",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("status", Text),
    column("parent", Integer),
    column("conversation", Text),
    column("background", Boolean),
    column("body", LargeBinary),
    column("input", LargeBinary),
    column("output", LargeBinary),
    column("transcript", LargeBinary),
)
item_places = table(
    "item_places",
    column("owner", Text),
    column("id", Text),
    column("response", Integer),
    column("position", Integer),
)
"""Where an item is: at this position of a response's input and output, taken together."""
event_chunks = table(
    "event_chunks",
    column("response", Integer),
    column("first", BigInteger),
    column("last", BigInteger),
    column("events", LargeBinary),
)
conversations = table(
    "conversations",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("metadata", LargeBinary),
)
conversation_entries = table(
    "conversation_entries",
    column("number", Integer),
    column("conversation", Integer),
    column("transcript", LargeBinary),
)
conversation_items = table(
    "conversation_items",
    column("number", Integer),
    column("conversation", Integer),
    column("entry", Integer),
    column("id", Text),
    column("json", LargeBinary),
)
files = table(
    "files",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("filename", Text),
    column("purpose", Text),
    column("bytes", BigInteger),
    column("status", Text),
    column("expires_at", BigInteger),
    column("content", Text),
)
uploads = table(
    "uploads",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("filename", Text),
    column("purpose", Text),
    column("bytes", BigInteger),
    column("mime_type", Text),
    column("expires_at", BigInteger),
    column("status", Text),
    column("file", Text),
    column("kept_seconds", BigInteger),
)
upload_parts = table(
    "upload_parts",
    column("number", Integer),
    column("id", Text),
    column("upload", Integer),
    column("created_at", BigInteger),
    column("bytes", BigInteger),
    column("content", Text),
)
keys = table(
    "keys",
    column("name", Text),
    column("hash", LargeBinary),
    column("created_at", BigInteger),
)
containers = table(
    "containers",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("name", Text),
    column("lane", Text),
    column("details", LargeBinary),
)
container_files = table(
    "container_files",
    column("container", Integer),
    column("path", Text),
)
"""Files of containers that a client brought; all others were made inside."""
skills = table(
    "skills",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("default_version", Integer),
    column("last_version", Integer),
)
"""`last_version` was given last; it may be deleted by now."""
skill_versions = table(
    "skill_versions",
    column("number", Integer),
    column("id", Text),
    column("skill", Integer),
    column("version", Integer),
    column("created_at", BigInteger),
    column("name", Text),
    column("description", Text),
    column("bytes", BigInteger),
    column("content", Text),
)
vector_stores = table(
    "vector_stores",
    column("number", Integer),
    column("id", Text),
    column("owner", Text),
    column("created_at", BigInteger),
    column("name", Text),
    column("description", Text),
    column("metadata", LargeBinary),
    column("expires_days", Integer),
    column("last_active_at", BigInteger),
    column("expired", Boolean),
)
vector_store_files = table(
    "vector_store_files",
    column("number", Integer),
    column("store", Integer),
    column("file", Text),
    column("created_at", BigInteger),
    column("status", Text),
    column("error_code", Text),
    column("error", Text),
    column("usage_bytes", BigInteger),
    column("attributes", LargeBinary),
    column("max_tokens", Integer),
    column("overlap_tokens", Integer),
)
"""A file that is added again gets another number: whoever read it under the old one has nothing more to say."""
file_batches = table(
    "file_batches",
    column("number", Integer),
    column("id", Text),
    column("store", Integer),
    column("created_at", BigInteger),
    column("cancelled", Boolean),
)
file_batch_entries = table(
    "file_batch_entries",
    column("batch", Integer),
    column("file", Text),
)
approvals = table(
    "approvals",
    column("owner", Text),
    column("id", Text),
    column("answered_at", BigInteger),
)
"""Requests for approval that were answered: each can be once."""
secrets = table(
    "secrets",
    column("name", Text),
    column("value", LargeBinary),
)
"""Keys that this server made for itself."""

_FIRST = (
    """
    create table responses (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        status text not null,
        parent integer references responses (number) on delete set null,
        conversation text,
        background integer not null,
        body blob not null,
        input blob not null,
        output blob not null,
        transcript blob not null
    )
    """,
    "create index responses_by_parent on responses (parent) where parent is not null",
    "create index responses_by_age on responses (created_at)",
    "create index responses_unfinished on responses (number) where status in ('queued', 'in_progress')",
    """
    create table item_places (
        owner text not null,
        id text not null,
        response integer not null,
        position integer not null,
        primary key (owner, id, response, position)
    ) without rowid
    """,
    """
    create table event_chunks (
        response integer not null references responses (number) on delete cascade,
        first integer not null,
        last integer not null,
        events blob not null,
        primary key (response, first)
    )
    """,
    """
    create table conversations (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        metadata blob not null
    )
    """,
    """
    create table conversation_entries (
        number integer primary key,
        conversation integer not null references conversations (number) on delete cascade,
        transcript blob
    )
    """,
    "create index conversation_entries_by_conversation on conversation_entries (conversation)",
    """
    create table conversation_items (
        number integer primary key,
        conversation integer not null references conversations (number) on delete cascade,
        entry integer not null references conversation_entries (number) on delete cascade,
        id text not null,
        json blob not null,
        unique (conversation, id)
    )
    """,
    "create index conversation_items_by_entry on conversation_items (entry)",
    """
    create table files (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        filename text not null,
        purpose text not null,
        bytes integer not null,
        status text not null,
        expires_at integer,
        content text not null unique
    )
    """,
    "create index files_by_owner on files (owner, number)",
    "create index files_by_expiry on files (expires_at) where expires_at is not null",
    """
    create table uploads (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        filename text not null,
        purpose text not null,
        bytes integer not null,
        mime_type text not null,
        expires_at integer not null,
        status text not null,
        file text
    )
    """,
    "create index uploads_by_expiry on uploads (expires_at)",
    """
    create table upload_parts (
        number integer primary key,
        id text not null unique,
        upload integer not null references uploads (number) on delete cascade,
        created_at integer not null,
        bytes integer not null,
        content text not null unique
    )
    """,
    "create index upload_parts_by_upload on upload_parts (upload)",
    """
    create table keys (
        name text primary key,
        hash blob not null unique,
        created_at integer not null
    )
    """,
)

_SECOND = ("alter table uploads add column kept_seconds integer",)

_THIRD = (
    """
    create table containers (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        name text not null,
        lane text,
        details blob not null
    )
    """,
    "create index containers_by_owner on containers (owner, number)",
    "create index containers_by_lane on containers (owner, lane, number) where lane is not null",
    """
    create table container_files (
        container integer not null references containers (number) on delete cascade,
        path text not null,
        primary key (container, path)
    ) without rowid
    """,
)

_FOURTH = (
    """
    create table skills (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        default_version integer not null,
        last_version integer not null
    )
    """,
    "create index skills_by_owner on skills (owner, number)",
    """
    create table skill_versions (
        number integer primary key,
        id text not null unique,
        skill integer not null references skills (number) on delete cascade,
        version integer not null,
        created_at integer not null,
        name text not null,
        description text not null,
        bytes integer not null,
        content text not null unique,
        unique (skill, version)
    )
    """,
)

_FIFTH = (
    """
    create table approvals (
        owner text not null,
        id text not null,
        answered_at integer not null,
        primary key (owner, id)
    ) without rowid
    """,
    "create table secrets (name text primary key, value blob not null) without rowid",
)

_SIXTH = (
    """
    create table vector_stores (
        number integer primary key,
        id text not null unique,
        owner text not null,
        created_at integer not null,
        name text not null,
        description text,
        metadata blob not null,
        expires_days integer,
        last_active_at integer not null,
        expired integer not null default 0
    )
    """,
    "create index vector_stores_by_owner on vector_stores (owner, number)",
    "create index vector_stores_that_expire on vector_stores (number) where expires_days is not null and not expired",
    """
    create table vector_store_files (
        number integer primary key autoincrement,
        store integer not null references vector_stores (number) on delete cascade,
        file text not null,
        created_at integer not null,
        status text not null,
        error_code text,
        error text,
        usage_bytes integer not null default 0,
        attributes blob not null,
        max_tokens integer not null,
        overlap_tokens integer not null,
        unique (store, file)
    )
    """,
    "create index vector_store_files_by_file on vector_store_files (file)",
    "create index vector_store_files_by_status on vector_store_files (store, status, usage_bytes)",
    "create index vector_store_files_unread on vector_store_files (number) where status = 'in_progress'",
    """
    create table file_batches (
        number integer primary key,
        id text not null unique,
        store integer not null references vector_stores (number) on delete cascade,
        created_at integer not null,
        cancelled integer not null default 0
    )
    """,
    "create index file_batches_by_store on file_batches (store)",
    """
    create table file_batch_entries (
        batch integer not null references file_batches (number) on delete cascade,
        file text not null,
        primary key (batch, file)
    ) without rowid
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _SECOND, _THIRD, _FOURTH, _FIFTH, _SIXTH)
