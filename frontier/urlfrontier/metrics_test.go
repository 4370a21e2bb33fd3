//go:build unix

package urlfrontier_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// TestMetrics makes calls and looks at what Prometheus is told of them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := newCluster(t, 1, nil).processes[0]
	p.put(t, discovered("1", info("https://a.example/1", "", "")), discovered("2", info("https://a.example/1", "", "")), known("3", info("https://a.example/2", "", ""), 1))
	p.get(t, &pb.GetParams{})
	if _, err := p.GetURLStatus(t.Context(), &pb.URLStatusRequest{Url: "https://a.example/none"}); err == nil {
		t.Error("found what was not put")
	}
	p.halt() // every call has ended
	want := `
		# HELP urlake_frontier_grpc_urls_total URLs that were put or got by gRPC, by method and status.
		# TYPE urlake_frontier_grpc_urls_total counter
		urlake_frontier_grpc_urls_total{method="GetURLs",status="OK"} 2
		urlake_frontier_grpc_urls_total{method="PutURLs",status="OK"} 2
		urlake_frontier_grpc_urls_total{method="PutURLs",status="SKIPPED"} 1
	`
	if err := testutil.GatherAndCompare(p.registry, strings.NewReader(want), "urlake_frontier_grpc_urls_total"); err != nil {
		t.Error(err)
	}
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "urlake_frontier_grpc_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			calls[strings.Join(labels, " ")] = m.GetHistogram().GetSampleCount()
		}
	}
	for call, n := range map[string]uint64{"OK PutURLs": 1, "OK GetURLs": 1, "NotFound GetURLStatus": 1} {
		if calls[call] != n {
			t.Errorf("%s: %d calls, want %d: %v", call, calls[call], n, calls)
		}
	}
}
