//go:build unix

package urlfrontier_test

import (
	"encoding/json"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestBlockedForEver holds that a queue is blocked until no time that cannot be shown.
func TestBlockedForEver(t *testing.T) {
	t.Parallel()
	p := newCluster(t, 1, nil).processes[0]
	const last = 253402300799
	if _, err := p.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "a.example", Time: last + 1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the year 10000: %v", err)
	}
	if _, err := p.BlockQueueUntil(t.Context(), &pb.BlockQueueParams{Key: "a.example", Time: last}); err != nil {
		t.Fatal(err)
	}
	d, err := p.f.Domain(t.Context(), "a.example")
	if err != nil || d.Blocked.Unix() != last {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
}
