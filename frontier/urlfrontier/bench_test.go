//go:build unix

package urlfrontier_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/urlake/urlake/frontier"
	pb "github.com/urlake/urlake/frontier/urlfrontier/urlfrontierpb"
)

// The load of the benchmark.
const streams, perMessage = 2, 100

// BenchmarkPutDiscovered puts URLAKE_BENCH_URLS URLs, by default 200,000, of a twentieth as many
// hosts in messages of 100, each with metadata as StormCrawler sends it, by two streams.
func BenchmarkPutDiscovered(b *testing.B) {
	n := 200_000
	if s := os.Getenv("URLAKE_BENCH_URLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for _, fsync := range []bool{true, false} {
		b.Run(fmt.Sprintf("fsync=%v", fsync), func(b *testing.B) { benchPutDiscovered(b, fsync, n) })
	}
}

func benchPutDiscovered(b *testing.B, fsync bool, n int) {
	c := newCluster(b, 1, func(o *frontier.Options) {
		o.Shards, o.Own = 32, time.Minute
		o.Shard.Sync, o.Shard.MemoryBytes = fsync, 8<<20
	})
	before := cpuTime(b)
	for b.Loop() {
		var all sync.WaitGroup
		for s := range streams {
			all.Go(func() {
				stream, err := c.processes[0].PutDiscovered(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				go func() {
					rng := rand.New(rand.NewPCG(1, uint64(s)))
					for i := 0; i < n/streams; {
						batch := &pb.DiscoveredBatch{ID: strconv.Itoa(i)}
						for range perMessage {
							batch.Items = append(batch.Items, &pb.URLInfo{
								Url: fmt.Sprintf("https://site%d.example/path/to/page-%d-%d.html", rng.IntN(n/20), s, i),
								Metadata: map[string]*pb.StringList{
									"depth":    {Values: []string{"3"}},
									"url.path": {Values: []string{"https://site.example/"}},
								},
							})
							i++
						}
						if stream.Send(batch) != nil {
							return
						}
					}
					_ = stream.CloseSend()
				}()
				added := 0
				for {
					ack, err := stream.Recv()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						b.Error(err)
						return
					}
					for _, st := range ack.GetStatuses() {
						if st == pb.AckMessage_OK {
							added++
						}
					}
				}
				if added != n/streams {
					b.Errorf("%d of %d URLs were added", added, n/streams)
				}
			})
		}
		all.Wait()
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "URLs/s")
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(n*b.N), "cpu-ns/URL")
}

// cpuTime is what this process has used of the processors, for the server and its clients.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
