//go:build unix

package coord

import (
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
	if err := s.Wake(t.Context(), 5000, []string{"c\x00x.example", "c\x00y.example"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Claim(t.Context(), "c", 6000, 1, time.Second); err != nil {
		t.Fatal(err)
	}
	if ready, all, err := f.Ready(t.Context(), "c", []int{0, 1}, 6000); ready != 1 || all != 2 || err != nil {
		t.Errorf("%d of %d are ready, %v", ready, all, err)
	}
	if ready, all, err := f.Ready(t.Context(), "other", []int{0}, 6000); ready+all != 0 || err != nil {
		t.Errorf("%d of %d are ready, %v", ready, all, err)
	}
	if err := s.Disown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Wake(t.Context(), 5000, []string{"c\x00z.example"}); err == nil {
		t.Error("nobody owns the shard")
	}
	before := f.Counts()
	if before.Commands < 6 || before.Time <= 0 || before.Errors != 0 {
		t.Errorf("%+v", before)
	}
	server.Kill(t)
	if _, _, err := s.Claim(t.Context(), "c", 6000, 1, time.Second); err == nil {
		t.Error("Redis is away")
	}
	if after := f.Counts(); after.Errors == 0 {
		t.Errorf("%+v", after)
	}
}
