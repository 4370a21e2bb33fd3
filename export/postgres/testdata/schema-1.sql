-- A schema of format 1 as the first build of that format has made and filled it. It stays as it is:
-- later builds have to bring it to their own format.

CREATE SCHEMA urlake;
SET search_path = urlake;

CREATE TABLE state (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format integer NOT NULL,
    lake text NOT NULL,
    slice text NOT NULL,
    layout text NOT NULL,
    version text NOT NULL DEFAULT '',
    takedown_epoch bigint NOT NULL DEFAULT 0,
    exported timestamptz,
    last_load bigint NOT NULL DEFAULT 0
);

CREATE TABLE exports (
    version text NOT NULL,
    takedown_epoch bigint NOT NULL,
    finished timestamptz NOT NULL DEFAULT now(),
    rows bigint NOT NULL,
    urls bigint NOT NULL,
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
    urls bigint NOT NULL
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
    PRIMARY KEY (domain64, key, batch_id)
) PARTITION BY RANGE (domain64);

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

CREATE TABLE load (
    load bigint PRIMARY KEY,
    plan text NOT NULL,
    whole boolean NOT NULL
);

CREATE TABLE load_chunks (
    load bigint NOT NULL,
    chunk integer NOT NULL,
    rows bigint NOT NULL DEFAULT 0,
    urls bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (load, chunk)
);

CREATE OR REPLACE FUNCTION url_host(url text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT substring(url FROM '^[a-z][a-z0-9+.-]*://(\[[^]/]*\]|[^/:?#]*)')
$$;

CREATE OR REPLACE FUNCTION url_key(url text) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    bytes bytea := convert_to(url, 'UTF8');
    name bytea := convert_to(trim(BOTH '[]' FROM coalesce(substring(url FROM '^[a-z][a-z0-9+.-]*://(\[[^]/]*\]|[^/:?#]*)'), '')), 'UTF8');
    -- FNV-1a of 64 bits in two halves of 32, since products of BIGINT must not overflow. The prime
    -- is 2^40 + 435.
    hi bigint := 3421674724;
    lo bigint := 2216829733;
    product bigint;
    total bigint := 0;
BEGIN
    FOR i IN 0 .. length(bytes) - 1 LOOP
        lo := lo # get_byte(bytes, i);
        product := lo * 435;
        hi := (hi * 435 + (product >> 32) + (lo << 8)) & 4294967295;
        lo := product & 4294967295;
    END LOOP;
    FOR i IN 0 .. length(name) - 1 LOOP
        total := total + get_byte(name, i);
    END LOOP;
    RETURN ((total & 127) << 56) | (((hi & 16777215) << 32 | lo) # (hi >> 24));
END
$$;

-- The numbers of a TLD, a domain or a host, and of all that is below it, are those from
-- first_number to last_number. Both are NULL for a name without a number.
CREATE OR REPLACE FUNCTION first_number(name text) RETURNS bigint
LANGUAGE sql STABLE STRICT PARALLEL SAFE
SET search_path = urlake, pg_temp AS $$
    SELECT d.number FROM domain64 d WHERE d.host = first_number.name ORDER BY d.number DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION last_number(name text) RETURNS bigint
LANGUAGE sql STABLE STRICT PARALLEL SAFE
SET search_path = urlake, pg_temp AS $$
    SELECT d.number | ~((-1::bigint) << (64 - (
        SELECT sum(b)::int FROM unnest(string_to_array(s.layout, '-')::int[]) WITH ORDINALITY AS t (b, n) WHERE n <= d.level)))
    FROM domain64 d, state s WHERE d.host = last_number.name ORDER BY d.number DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION lookup(url text)
RETURNS TABLE (dataset_id integer, dataset text, canonical_url text, requested boolean, rows bigint,
               first_ts timestamptz, last_ts timestamptz, size bigint)
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = urlake, pg_temp
SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    wanted text := lookup.url;
    mapped text;
    k bigint;
    numbers bigint[];
BEGIN
    SELECT m.canonical_url INTO mapped FROM id_map m
    WHERE m.requested_key = url_key(lookup.url) AND m.requested_url = lookup.url
    ORDER BY m.canonical_url COLLATE "C" LIMIT 1;
    wanted := coalesce(mapped, wanted);
    k := url_key(wanted);
    numbers := ARRAY(SELECT d.number FROM domain64 d WHERE d.host = url_host(wanted));
    RETURN QUERY
    SELECT f.dataset_id, d.name, wanted, mapped IS NOT NULL, sum(f.rows)::bigint, min(f.first_ts), max(f.last_ts),
           least(sum(f.size), 9223372036854775807)::bigint
    FROM (
        SELECT u.dataset_id, u.rows, u.first_ts, u.last_ts, u.size FROM urls u
        WHERE u.domain64 = ANY (numbers) AND u.key = k AND u.url = wanted
        UNION ALL
        SELECT u.dataset_id, u.rows, u.first_ts, u.last_ts, u.size FROM collisions u
        WHERE u.domain64 = ANY (numbers) AND u.key = k AND u.url = wanted
    ) f JOIN datasets d USING (dataset_id)
    GROUP BY f.dataset_id, d.name
    ORDER BY f.dataset_id;
END
$$;

COMMENT ON FUNCTION lookup(text) IS 'urlake 0000000000000000';

INSERT INTO state (format, lake, slice, layout, version, takedown_epoch, exported, last_load)
VALUES (1, 'file:///lake', 'everything', '8-24-8-24', '20260101T000000Z-0000000000000000', 0, '2026-01-01', 1);
INSERT INTO exports VALUES ('20260101T000000Z-0000000000000000', 0, '2026-01-01', 3, 1, 1, 0);
INSERT INTO datasets VALUES (9, 'old', '', '', '', 1, 3, 1);
INSERT INTO batches VALUES (1, 9, '1', '00000000000000000000000000000000');
INSERT INTO domain64 VALUES
    (x'0100000000000000'::bigint, 1, 'com', ''),
    (x'0100000100000000'::bigint, 2, 'example.com', 'example.com'),
    (x'0100000101000000'::bigint, 3, 'h0.example.com', 'example.com');
CREATE TABLE urls_rest_8000000000000000 PARTITION OF urls FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
INSERT INTO urls
SELECT x'0100000101000000'::bigint, url_key(u), NULL, NULL, NULL, 3, 1, 9, u FROM (VALUES ('https://h0.example.com/p/0?q=0')) v (u);
