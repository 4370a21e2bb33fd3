//go:build unix

package coord

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/urlake/urlake/internal/testenv"
)

// Counts have what Redis was asked and failed to do, and nothing that is expected.
func TestCounts(t *testing.T) {
	server := testenv.NewRedis(t)
	opt, err := redis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	opt.MaxRetries = -1
	client := redis.NewClient(opt)
	defer client.Close()
	f, err := Open(t.Context(), client, "f", "a", 2)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := f.Own(t.Context(), 0, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Wake(5000, []string{"c\x00x.example", "c\x00y.example"})
	claim, _ := s.Claim("c", 6000, 1, time.Second)
	if ready, all := s.Ready("c", 6000); ready != 1 || all != 2 {
		t.Errorf("%d of %d are ready", ready, all)
	}
	if ready, all := s.Ready("other", 6000); ready+all != 0 {
		t.Errorf("%d of %d are ready", ready, all)
	}
	if err := s.Lease(t.Context(), 9000, nil, claim); err != nil {
		t.Fatal(err)
	}
	if err := s.Disown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Lease(t.Context(), 9000, nil, claim); !errors.Is(err, ErrFenced) {
		t.Errorf("nobody owns the shard: %v", err)
	}
	before := f.Counts()
	if before.Commands < 6 || before.Time <= 0 || before.Errors != 0 {
		t.Errorf("%+v", before)
	}
	if err := s.Certain(t.Context()); err != nil || s.Uncertain() {
		t.Error(err)
	}
	server.Kill(t)
	if err := s.Lease(t.Context(), 9000, nil, claim); !errors.Is(err, ErrRedis) {
		t.Errorf("Redis is away: %v", err)
	}
	if err := s.Certain(t.Context()); !errors.Is(err, ErrRedis) || !s.Uncertain() {
		t.Errorf("Redis is away: %v", err)
	}
	if after := f.Counts(); after.Errors == 0 {
		t.Errorf("%+v", after)
	}
}
