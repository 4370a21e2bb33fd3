package coord

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/lake/codec"
)

// The state of a shard, or of a frontier without its shards, is what Redis has below a prefix of
// keys, in a file that any Redis can be filled from: docs/formats/frontier.md describes it. It has
// no owners: whoever restores it owns nothing.
const (
	stateMagic   = "UFRS"
	stateVersion = 1

	// The types of keys.
	stateString = 's'
	stateHash   = 'h'
	stateSet    = 'e'
	stateSorted = 'z'
)

// ErrInUse means that a name of a frontier is in use in Redis.
var ErrInUse = errors.New("the name is in use")

// restoring is the key that a restore sets first and deletes last.
const restoring = "restoring"

// State returns what Redis has of the shard. It may change meanwhile: what was there before the
// call and still is after it is in the state, and of the rest a part may be. Leases are read before
// the times of their keys, so that of a lease that ends meanwhile there is the lease still, or the
// time to which its end has put off its key: without both the server would be asked again at once.
func (s *Shard) State(ctx context.Context) ([]byte, error) {
	return s.f.state(ctx, s.prefix, "owner", openingKey)
}

// State returns what Redis has of the frontier besides its shards and processes.
func (f *Frontier) State(ctx context.Context) ([]byte, error) {
	return f.state(ctx, "{"+f.name+"}:", "shards", "nodes", folder, restoring)
}

// state reads and encodes the keys that begin with a prefix, in the order of their names, their
// members sorted, so that equal states are equal bytes. Shard.State relies on the order of reading:
// "grants" is before "times".
func (f *Frontier) state(ctx context.Context, prefix string, without ...string) ([]byte, error) {
	var mu sync.Mutex
	found := map[string]struct{}{}
	err := eachNode(ctx, f.redis, prefix, func(ctx context.Context, node *redis.Client) error {
		return scanKeys(ctx, node, prefix, func(key string) {
			mu.Lock()
			defer mu.Unlock()
			found[key] = struct{}{}
		})
	})
	if err != nil {
		return nil, failed(err)
	}
	b := codec.AppendMagic(nil, stateMagic, stateVersion)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		name := strings.TrimPrefix(key, prefix)
		if slices.Contains(without, name) {
			continue
		}
		value, err := f.value(ctx, key)
		if err != nil {
			return nil, err
		}
		if value != nil {
			b = append(codec.AppendString(b, name), value...)
		}
	}
	return codec.AppendCRC32C(b), nil
}

// scanKeys calls yield with the keys that begin with a prefix. One may come several times.
func scanKeys(ctx context.Context, node *redis.Client, prefix string, yield func(key string)) error {
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(prefix)
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, literal+"*", 10_000).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			yield(key)
		}
		if cursor = next; next == 0 {
			return nil
		}
	}
}

// value encodes a key's type, when it expires, and what it has. It is nil if the key is gone.
func (f *Frontier) value(ctx context.Context, key string) ([]byte, error) {
	p := f.redis.Pipeline()
	typ, ttl := p.Type(ctx, key), p.PTTL(ctx, key)
	if _, err := p.Exec(ctx); err != nil {
		return nil, failed(err)
	}
	kinds := map[string]byte{"string": stateString, "hash": stateHash, "set": stateSet, "zset": stateSorted}
	kind := kinds[typ.Val()]
	if typ.Val() == "none" {
		return nil, nil
	}
	if kind == 0 {
		return nil, fmt.Errorf("redis: key %s: a %s, which is nothing of a frontier's", key, typ.Val())
	}
	members, err := f.members(ctx, kind, key)
	if err != nil {
		return nil, failed(err)
	}
	expires := uint64(0)
	if ttl.Val() > 0 {
		expires = uint64(time.Now().Add(ttl.Val()).UnixMilli())
	}
	b := codec.AppendU64([]byte{kind}, expires)
	b = codec.AppendUvarint(b, uint64(len(members)))
	for _, m := range slices.SortedFunc(slices.Values(members), func(a, b member) int { return strings.Compare(a.name, b.name) }) {
		b = codec.AppendString(b, m.name)
		switch kind {
		case stateHash:
			b = codec.AppendString(b, m.value)
		case stateSorted:
			b = codec.AppendU64(b, math.Float64bits(m.score))
		}
	}
	return b, nil
}

// member is a member of a set, sorted or not, a field of a hash with its value, or a string.
type member struct {
	name, value string
	score       float64
}

func (f *Frontier) members(ctx context.Context, kind byte, key string) (all []member, err error) {
	if kind == stateString {
		v, err := f.redis.Get(ctx, key).Result()
		return []member{{name: v}}, err
	}
	found := map[string]string{}
	if strings.HasSuffix(key, ":"+grantsKey) {
		// A scan could miss both of two grants between which a lease moves. There are few fields.
		found, err = f.redis.HGetAll(ctx, key).Result()
		return fields(found), err
	}
	// A scan finds what is there all the time, and may return a member twice.
	for cursor := uint64(0); ; {
		var part []string
		switch kind {
		case stateHash:
			part, cursor, err = f.redis.HScan(ctx, key, cursor, "", batch).Result()
		case stateSorted:
			part, cursor, err = f.redis.ZScan(ctx, key, cursor, "", batch).Result()
		default:
			part, cursor, err = f.redis.SScan(ctx, key, cursor, "", batch).Result()
		}
		if err != nil {
			return nil, err
		}
		for len(part) > 0 {
			if kind == stateSet {
				found[part[0]], part = "", part[1:]
			} else {
				found[part[0]], part = part[1], part[2:]
			}
		}
		if cursor == 0 {
			break
		}
	}
	all = fields(found)
	for i := range all {
		if kind == stateSorted {
			if all[i].score, err = strconv.ParseFloat(all[i].value, 64); err != nil {
				return nil, fmt.Errorf("redis: key %s: %w", key, err)
			}
		}
	}
	return all, nil
}

func fields(of map[string]string) (all []member) {
	for name, value := range of {
		all = append(all, member{name: name, value: value})
	}
	return all
}

// Restore fills an unused name in Redis. It may be killed at any point: until End, no frontier of
// the name opens, and the restore can be begun again.
type Restore struct {
	redis redis.UniversalClient
	name  string
}

// CheckUnused says whether a restore to a name can begin: Redis has nothing of it, or at most what
// another restore from the same snapshot has left. Otherwise the error is ErrInUse.
func CheckUnused(ctx context.Context, client redis.UniversalClient, name, snapshot string) error {
	_, _, err := (&Restore{client, name}).left(ctx, snapshot)
	return err
}

func (r *Restore) marker() string { return "{" + r.name + "}:" + restoring }

// left returns what another restore has left.
func (r *Restore) left(ctx context.Context, snapshot string) (keys []string, begun bool, err error) {
	other, err := r.redis.Get(ctx, r.marker()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, false, failed(err)
	}
	if other != "" && other != snapshot {
		return nil, false, fmt.Errorf("frontier %q in Redis: %w: a restore from snapshot %s has not ended; end that, or restore to another name", r.name, ErrInUse, other)
	}
	keys, err = r.keys(ctx)
	if err == nil && other == "" && len(keys) > 0 {
		err = fmt.Errorf("frontier %q in Redis: %w: there is the key %s; restore to another name or another Redis", r.name, ErrInUse, keys[0])
	}
	return keys, other != "", err
}

// BeginRestore begins to fill a name. See CheckUnused.
func BeginRestore(ctx context.Context, client redis.UniversalClient, name, snapshot string) (*Restore, error) {
	r := &Restore{client, name}
	keys, begun, err := r.left(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	marker := r.marker()
	if !begun {
		ok, err := client.SetNX(ctx, marker, snapshot, 0).Result()
		if err == nil && !ok {
			return nil, fmt.Errorf("frontier %q in Redis: %w: another restore has just begun", name, ErrInUse)
		}
		return r, failed(err)
	}
	for _, key := range keys {
		if key != marker {
			if err := client.Del(ctx, key).Err(); err != nil {
				return nil, failed(err)
			}
		}
	}
	return r, nil
}

// keys returns the keys of the frontier and of its shards.
func (r *Restore) keys(ctx context.Context) (all []string, err error) {
	var mu sync.Mutex
	for _, prefix := range []string{"{" + r.name + "}:", "{" + r.name + ":"} {
		err = errors.Join(err, eachNode(ctx, r.redis, prefix, func(ctx context.Context, node *redis.Client) error {
			return scanKeys(ctx, node, prefix, func(key string) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, key)
			})
		}))
	}
	slices.Sort(all)
	return slices.Compact(all), failed(err)
}

// Shard fills a shard with what State has returned, which is in a file.
func (r *Restore) Shard(ctx context.Context, shard int, state []byte, file string) error {
	f := Frontier{name: r.name}
	return r.fill(ctx, f.prefix(shard), state, file)
}

// Frontier fills what belongs to no shard.
func (r *Restore) Frontier(ctx context.Context, state []byte, file string) error {
	return r.fill(ctx, "{"+r.name+"}:", state, file)
}

// End sets the number of shards, and lets frontiers open.
func (r *Restore) End(ctx context.Context, shards int) error {
	prefix := "{" + r.name + "}:"
	if err := r.redis.Set(ctx, prefix+"shards", shards, 0).Err(); err != nil {
		return failed(err)
	}
	err := eachNode(ctx, r.redis, "{"+r.name, func(ctx context.Context, node *redis.Client) error {
		// Redis 7.2 can say when its file is on the disk, if it has one. Others need a second.
		_ = node.Do(ctx, "WAITAOF", 1, 0, 5000).Err()
		return nil
	})
	if err != nil {
		return failed(err)
	}
	return failed(r.redis.Del(ctx, prefix+restoring).Err())
}

// CheckState says whether the bytes of a file are a whole state.
func CheckState(state []byte, file string) error {
	return readState(state, file, func(string, byte, uint64, []member) error { return nil })
}

func readState(state []byte, file string, yield func(name string, kind byte, expires uint64, members []member) error) error {
	body, err := codec.CheckCRC32C(state, file, "state of Redis")
	if err != nil {
		return err
	}
	d := codec.NewDecoder(body, file, "state of Redis")
	d.Magic(stateMagic, stateVersion)
	for d.Err() == nil && d.Len() > 0 {
		name, kind, expires := d.String(), d.U8(), d.U64()
		members := make([]member, d.Uint(uint64(d.Len())))
		for i := range members {
			members[i].name = d.String()
			switch kind {
			case stateHash:
				members[i].value = d.String()
			case stateSorted:
				members[i].score = math.Float64frombits(d.U64())
			case stateString, stateSet:
			default:
				d.Fail("a known type", kind)
			}
		}
		if d.Err() == nil {
			if err := yield(name, kind, expires, members); err != nil {
				return err
			}
		}
	}
	return d.Close()
}

func (r *Restore) fill(ctx context.Context, prefix string, state []byte, file string) error {
	return readState(state, file, func(name string, kind byte, expires uint64, members []member) error {
		for part := range slices.Chunk(members, batch) {
			if err := r.put(ctx, prefix+name, kind, part); err != nil {
				return failed(err)
			}
		}
		if expires == 0 {
			return nil
		}
		return failed(r.redis.PExpireAt(ctx, prefix+name, time.UnixMilli(int64(expires))).Err())
	})
}

func (r *Restore) put(ctx context.Context, key string, kind byte, members []member) error {
	args := []any{"ZADD", key}
	switch kind {
	case stateString:
		args[0] = "SET"
	case stateHash:
		args[0] = "HSET"
	case stateSet:
		args[0] = "SADD"
	}
	for _, m := range members {
		switch kind {
		case stateSorted:
			args = append(args, strconv.FormatFloat(m.score, 'g', -1, 64), m.name)
		case stateHash:
			args = append(args, m.name, m.value)
		default:
			args = append(args, m.name)
		}
	}
	return r.redis.Do(ctx, args...).Err()
}

// Restored says whether a restore to a name has ended.
func Restored(ctx context.Context, client redis.UniversalClient, name string) (bool, error) {
	prefix := "{" + name + "}:"
	p := client.Pipeline()
	shards, marker := p.Exists(ctx, prefix+"shards"), p.Exists(ctx, prefix+restoring)
	_, err := p.Exec(ctx)
	return shards.Val() == 1 && marker.Val() == 0, failed(err)
}
