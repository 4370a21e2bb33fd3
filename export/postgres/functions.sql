-- What the schema ships. Plain PL/pgSQL, no extension.

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
SET search_path = @schema@, pg_temp AS $$
    SELECT d.number FROM domain64 d WHERE d.host = first_number.name ORDER BY d.number DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION last_number(name text) RETURNS bigint
LANGUAGE sql STABLE STRICT PARALLEL SAFE
SET search_path = @schema@, pg_temp AS $$
    SELECT d.number | ~((-1::bigint) << (64 - (
        SELECT sum(b)::int FROM unnest(string_to_array(s.layout, '-')::int[]) WITH ORDINALITY AS t (b, n) WHERE n <= d.level)))
    FROM domain64 d, state s WHERE d.host = last_number.name ORDER BY d.number DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION lookup(url text)
RETURNS TABLE (dataset_id integer, dataset text, canonical_url text, requested boolean, rows bigint,
               first_ts timestamptz, last_ts timestamptz, size bigint)
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = @schema@, pg_temp
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
           -- Not LEAST, which ignores NULL: a URL without a size has none.
           CASE WHEN sum(f.size) > 9223372036854775807 THEN 9223372036854775807 ELSE sum(f.size) END::bigint
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
