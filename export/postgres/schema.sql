-- The tables of an export, in the schema that search_path names. docs/postgres.md describes them.

CREATE TABLE state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    lake text NOT NULL,
    slice text NOT NULL,
    layout text NOT NULL,
    version text NOT NULL DEFAULT '',
    takedown_epoch bigint NOT NULL DEFAULT 0,
    exported timestamptz,
    last_load bigint NOT NULL DEFAULT 0,
    run text NOT NULL DEFAULT '',
    loading boolean NOT NULL DEFAULT false
);

CREATE TABLE exports (
    version text NOT NULL,
    takedown_epoch bigint NOT NULL,
    finished timestamptz NOT NULL,
    rows bigint NOT NULL,
    urls bigint NOT NULL,
    datasets bigint NOT NULL,
    added bigint NOT NULL,
    removed bigint NOT NULL
);

CREATE TABLE datasets (
    dataset_id integer PRIMARY KEY,
    name text NOT NULL UNIQUE,
    title text NOT NULL,
    source text NOT NULL,
    licence text NOT NULL,
    batches integer NOT NULL,
    rows bigint NOT NULL,
    urls bigint NOT NULL,
    digest text NOT NULL
);

CREATE TABLE batches (
    batch_id integer PRIMARY KEY,
    dataset_id integer NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    UNIQUE (dataset_id, name)
);

CREATE TABLE domain64 (
    number bigint PRIMARY KEY,
    level smallint NOT NULL CHECK (level BETWEEN 1 AND 3),
    host text NOT NULL,
    domain text NOT NULL
);
CREATE INDEX domain64_host ON domain64 (host);
CREATE INDEX domain64_domain ON domain64 (domain);

CREATE TABLE urls (
    domain64 bigint NOT NULL,
    key bigint NOT NULL,
    first_ts timestamptz,
    last_ts timestamptz,
    size bigint,
    rows bigint NOT NULL,
    batch_id integer NOT NULL,
    dataset_id integer NOT NULL,
    url text NOT NULL,
    PRIMARY KEY (domain64, key, batch_id, dataset_id)
) PARTITION BY LIST (dataset_id);

CREATE TABLE collisions (
    domain64 bigint NOT NULL,
    key bigint NOT NULL,
    first_ts timestamptz,
    last_ts timestamptz,
    size bigint,
    rows bigint NOT NULL,
    batch_id integer NOT NULL,
    dataset_id integer NOT NULL,
    url text NOT NULL
);
CREATE INDEX collisions_key ON collisions (domain64, key);

CREATE TABLE id_map (
    requested_key bigint NOT NULL,
    canonical_key bigint NOT NULL,
    batch_id integer NOT NULL,
    dataset_id integer NOT NULL,
    requested_url text NOT NULL,
    canonical_url text NOT NULL
);
CREATE INDEX id_map_requested ON id_map (requested_key);

CREATE TABLE takedowns (
    rule text PRIMARY KEY,
    host text NOT NULL
);
