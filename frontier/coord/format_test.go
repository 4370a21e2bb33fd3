//go:build unix

package coord_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/codec"
)

// writeState has TestState write a state beside the earlier ones, which are never written again.
var writeState = flag.String("write-state", "", "write frontier/coord/testdata/`NAME`.hex")

func newClient(t *testing.T) *redis.Client {
	t.Helper()
	opt, err := redis.ParseURL(testenv.NewRedis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// open opens a frontier and its shard, and returns the leases that there are.
func open(t *testing.T, client *redis.Client) (*coord.Frontier, *coord.Shard, []coord.Lease) {
	t.Helper()
	f, err := coord.Open(t.Context(), client, "f", "node", 1)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := f.Own(t.Context(), 0, time.Hour)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	leases, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f, s, leases
}

func shardIn(t *testing.T, client *redis.Client) (*coord.Frontier, *coord.Shard) {
	t.Helper()
	f, s, _ := open(t, client)
	return f, s
}

// states returns what Redis has of the frontier and of its shard, in lines of hex.
func states(t *testing.T, f *coord.Frontier, s *coord.Shard) string {
	t.Helper()
	of, err := f.State(t.Context())
	shard, err2 := s.State(t.Context())
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(of) + "\n" + hex.EncodeToString(shard) + "\n"
}

const exampleNow = int64(1_795_680_000_000)

var exampleLeases = []coord.Lease{coord.NewLease(1<<63+5, 7, "c\x00a.example"), coord.NewLease(0, 8, "DEFAULT\x00b.example")}

// exampleState brings Redis to everything that it can have of a frontier.
func exampleState(t *testing.T, f *coord.Frontier, s *coord.Shard) {
	t.Helper()
	ctx := t.Context()
	delay, limit, blocked, yes := 1500*time.Millisecond, int64(1000), exampleNow+9000, true
	_, err := s.Change(ctx, "a.example", coord.Change{Delay: &delay, Cap: &limit, Robots: &[]coord.RobotsDelay{{Delay: 5 * time.Second, Until: exampleNow + 1000}}})
	_, err2 := s.Change(ctx, "b.example", coord.Change{Blocked: &blocked, Paused: &yes, Excluded: &yes})
	_, err3 := f.SetExcluded(ctx, true, []string{"b.example", "d.example"})
	err = errors.Join(err, err2, err3, s.SetLimit(ctx, "c\x00a.example", 50), f.SetActive(ctx, false, true), f.SetDelay(ctx, 3*time.Second),
		f.QueueBy(ctx, "host"))
	if err != nil {
		t.Fatal(err)
	}
	wakeExample(s)
	claim, _ := s.Claim("c", exampleNow, 1, time.Minute, "a.example")
	if !slices.Equal(claim.Keys, []string{"a.example"}) {
		t.Fatal(claim)
	}
	failing := coord.NewLease(9, 9, "c\x00c.example")
	if err := s.Lease(ctx, exampleNow+60_000, append(slices.Clone(exampleLeases), failing), claim); err != nil {
		t.Fatal(err)
	}
	// A failure counts.
	if live, _, err := s.Report(ctx, exampleNow, []coord.Lease{failing}, []coord.Report{{Failed: true}},
		coord.Backoff{Delay: time.Second, Longest: time.Hour}); err != nil || !live[0] {
		t.Fatal(live, err)
	}
	s.End([]coord.Lease{failing})
}

// wakeExample wakes queues in which something waits, as the files say.
func wakeExample(s *coord.Shard) {
	s.Wake(exampleNow, []string{"c\x00a.example", "c\x00c.example", "DEFAULT\x00c.example"})
}

// TestState fills Redis with what earlier programs have had in it, and finds what they found.
// Today's program has the newest just so: whoever changes that writes another state, and raises the
// version of the keys unless they only add one that earlier programs may ignore.
func TestState(t *testing.T) {
	client := newClient(t)
	f, s := shardIn(t, client)
	exampleState(t, f, s)
	today := states(t, f, s)
	if *writeState != "" {
		if err := os.WriteFile(filepath.Join("testdata", *writeState+".hex"), []byte(today), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	names, err := fs.Glob(os.DirFS("testdata"), "*.hex")
	if err != nil || len(names) == 0 {
		t.Fatal("no state in testdata", err)
	}
	for i, name := range names {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if i == len(names)-1 && string(data) != today {
			t.Errorf("today's program has another state than %s:\n%s%s", name, data, today)
		}
		var parts [][]byte
		for line := range strings.Lines(string(data)) {
			b, err := hex.DecodeString(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, b)
		}
		client := newClient(t)
		r, err := coord.BeginRestore(t.Context(), client, "f", "snapshot")
		if err == nil {
			err = errors.Join(r.Frontier(t.Context(), parts[0], name), r.Shard(t.Context(), 0, parts[1], name), r.End(t.Context(), 1))
		}
		if err != nil {
			t.Fatal(err)
		}
		f, s, leases := open(t, client)
		compareExample(t, name, f, s, leases)
	}
}

// compareExample holds that Redis has what exampleState has brought it to.
func compareExample(t *testing.T, name string, f *coord.Frontier, s *coord.Shard, leases []coord.Lease) {
	t.Helper()
	ctx := t.Context()
	got := map[string]string{}
	for key, set := range s.AllSettings() {
		got[key] = fmt.Sprintf("%+v", set)
	}
	want := map[string]string{
		"a.example": fmt.Sprintf("%+v", coord.Settings{
			Delay: 1500 * time.Millisecond, HasDelay: true, Cap: 1000, HasCap: true, Robots: []coord.RobotsDelay{{Delay: 5 * time.Second, Until: exampleNow + 1000}},
		}),
		"b.example": fmt.Sprintf("%+v", coord.Settings{Paused: true, Excluded: true, Blocked: exampleNow + 9000}),
		"c.example": fmt.Sprintf("%+v", coord.Settings{Failures: 1, Failed: exampleNow}),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: settings %v, want %v", name, got, want)
	}
	leases = slices.DeleteFunc(leases, func(l coord.Lease) bool { return l.Seq() == 9 }) // it has ended, as the files say
	slices.SortFunc(leases, func(a, b coord.Lease) int { return int(a.Seq()) - int(b.Seq()) })
	if !slices.Equal(leases, exampleLeases) {
		t.Errorf("%s: leases %v", name, leases)
	}
	limits, err := s.Limits(ctx)
	if err != nil || fmt.Sprint(limits) != fmt.Sprint(map[string]int64{"c\x00a.example": 50}) {
		t.Errorf("%s: limits %v, %v", name, limits, err)
	}
	// The robots.txt asks for five seconds, which are longer than the delay of the key.
	wakeExample(s)
	if claim, next := s.Claim("c", exampleNow+1, 10, time.Minute); len(claim.Keys) > 0 || next <= exampleNow+1 {
		t.Errorf("%s: claimed %q, next %d", name, claim.Keys, next)
	}
	if claim, _ := s.Claim("c", exampleNow+3_600_000, 10, time.Minute); len(claim.Keys) != 2 {
		t.Errorf("%s: after an hour %q", name, claim.Keys)
	}
	control, err := f.Control(ctx)
	if err != nil || fmt.Sprintf("%+v", control) == fmt.Sprintf("%+v", coord.Control{}) {
		t.Errorf("%s: control %+v, %v", name, control, err)
	}
	excluded, err := f.Excluded(ctx)
	if since := name > "1-second.hex"; err != nil || since != (len(excluded) == 2 && control.Exclusions == 1) {
		t.Errorf("%s: excluded %v, %d, %v", name, excluded, control.Exclusions, err)
	}
	// The first state had nothing of this: the next process fixes it.
	if err := f.QueueBy(ctx, "domain"); (err == nil) != (name == "1-first.hex") {
		t.Errorf("%s: queue by domain: %v", name, err)
	}
}

// TestUpgrade holds that a frontier of an earlier version is left alone while a process lives that
// may be of an earlier program, and has nothing of that version when its shards were opened.
func TestUpgrade(t *testing.T) {
	ctx := t.Context()
	client := newClient(t)
	shardIn(t, client)
	err := errors.Join(
		client.Set(ctx, "{f}:format", 1, 0).Err(),
		client.ZAdd(ctx, "{f}:nodes", redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "old"}).Err(),
		client.Del(ctx, "{f:0}:leases").Err(),
		client.ZAdd(ctx, "{f:0}:ready:c", redis.Z{Score: 1, Member: "a.example"}).Err(),
		client.ZAdd(ctx, "{f:0:0}:ready:c", redis.Z{Score: 1, Member: "of another frontier"}).Err())
	for i := range 2500 {
		l := coord.NewLease(uint64(i)<<40, uint64(i), "c\x00a.example")
		err = errors.Join(err, client.ZAdd(ctx, "{f:0}:leases", redis.Z{Score: float64(exampleNow + int64(i/7)), Member: string(l)}).Err())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := coord.Open(ctx, client, "f", "new", 1); err == nil || !strings.Contains(err.Error(), "old serves it; stop all its processes first") {
		t.Errorf("while another process lives: %v", err)
	}
	if err := client.ZAdd(ctx, "{f}:nodes", redis.Z{Score: 1, Member: "old"}).Err(); err != nil {
		t.Fatal(err)
	}
	_, _, leases := open(t, client)
	if len(leases) != 2500 {
		t.Errorf("%d leases", len(leases))
	}
	until, _ := grantsOf(t, client)
	for _, l := range leases {
		if want := exampleNow + int64(l.Seq()/7); until[l] != want {
			t.Fatalf("lease %d ends at %d, want %d", l.Seq(), until[l], want)
		}
	}
	if keys, err := client.Keys(ctx, "{f*").Result(); err != nil || !slices.Contains(keys, "{f:0:0}:ready:c") || slices.ContainsFunc(keys, func(key string) bool {
		return strings.HasPrefix(key, "{f:0}:ready") || strings.Contains(key, "upgrading")
	}) {
		t.Errorf("there are still %q, %v", keys, err)
	}
	// A process of the first version that had hung finds no list of leases.
	if err := client.ZRange(ctx, "{f:0}:leases", 0, 9).Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("leases of version 1: %v", err)
	}
}

// A frontier in Redis that a newer program has written is refused, and left alone. One that no
// program has given a version yet is of the first.
func TestNewerState(t *testing.T) {
	ctx := t.Context()
	client := newClient(t)
	f, s := shardIn(t, client)
	exampleState(t, f, s)
	if err := client.Del(ctx, "{f}:format").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := coord.Open(ctx, client, "f", "other", 1); err != nil {
		t.Fatal(err)
	}
	if v, err := client.Get(ctx, "{f}:format").Result(); v != "2" || err != nil {
		t.Errorf("the version is %q, %v", v, err)
	}
	if err := client.Set(ctx, "{f}:format", 3, 0).Err(); err != nil {
		t.Fatal(err)
	}
	before := states(t, f, s)
	_, err := coord.Open(ctx, client, "f", "other", 7)
	if want := "{f}:format: format 3, but this program knows formats up to 2; it needs a newer urlake"; !codec.IsFormat(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if after := states(t, f, s); after != before {
		t.Errorf("it was changed: %s, was %s", after, before)
	}
	// So is a snapshot of another version.
	b, err := s.State(ctx)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(b[:len(b)-4])
	newer[4]++
	if err := coord.CheckState(codec.AppendCRC32C(newer), "redis"); !codec.IsFormat(err) {
		t.Errorf("a newer snapshot of Redis: %v", err)
	}
}
