package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/internal/testlake"
	"github.com/urlake/urlake/lake/blob"
)

// Three servers with default settings answer from a lake, of its current version and of the first
// one. A takedown hides a URL from all of them within the time between two reads of the manifest,
// and what it takes to read it. The test prints how long that was, from the start of the command.
// URLAKE_TAKEDOWNS is the number of takedowns, 3 by default.
func TestTakedownReachesTheLastServer(t *testing.T) {
	t.Parallel()
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		takedownReaches(t, "file://"+t.TempDir())
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		takedownReaches(t, testenv.NewS3Server(t).NewBucketURL(t))
	})
}

func takedownReaches(t *testing.T, lake string) {
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	takedowns := 3
	if text := os.Getenv("URLAKE_TAKEDOWNS"); text != "" {
		if takedowns, err = strconv.Atoi(text); err != nil {
			t.Fatalf("URLAKE_TAKEDOWNS: %v", err)
		}
	}
	store, err := blob.Open(t.Context(), lake)
	if err != nil {
		t.Fatal(err)
	}
	const batches, rows, domains = 4, 5000, 500
	first := ""
	for b := range batches {
		var list []testlake.Record
		for i := range rows {
			list = append(list, testlake.Record{URL: fmt.Sprintf("https://www.site%d.test/%d/%d", i%domains, i, b/2)})
		}
		testlake.Ingest(t, store, "web", fmt.Sprint("b", b), list)
		if version := testlake.Publish(t, store).Version; first == "" {
			first = version
		}
	}
	u := &urlake{lake: lake, bin: bin, env: os.Environ()}
	var servers []string
	for range 3 {
		u.serve(t)
		servers = append(servers, u.base)
	}
	// rowsOf is how many rows a server shows of URL number i, in a version or in the current one.
	rowsOf := func(ctx context.Context, server string, i int, version string) (n int, err error) {
		path := fmt.Sprintf("%s/v1/domain/site%d.test/datasets/1/urls?limit=10000&version=%s", server, i%domains, cmp.Or(version, "current"))
		status, body, err := probe(ctx, path)
		if err == nil && status != 200 && status != 404 {
			err = errors.New(body)
		}
		return strings.Count(body, fmt.Sprintf(`"https://www.site%d.test/%d/`, i%domains, i)), err
	}
	var last, command []time.Duration
	for i := range takedowns {
		for _, server := range servers {
			for version, want := range map[string]int{"": batches, first: 1} {
				if n, err := rowsOf(t.Context(), server, i, version); err != nil || n != want {
					t.Fatalf("%d rows of URL %d before, want %d, %v", n, i, want, err)
				}
			}
		}
		time.Sleep(time.Duration(i*700%2000) * time.Millisecond) // the servers look every two seconds
		began := time.Now()
		var wg sync.WaitGroup
		took := make([]time.Duration, len(servers))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for s, server := range servers {
			wg.Go(func() {
				for {
					n, err := rowsOf(ctx, server, i, "")
					if err != nil {
						t.Errorf("server %d: %v", s, err)
						return
					}
					if n == 0 {
						took[s] = time.Since(began)
						break
					}
					if n != batches {
						t.Errorf("server %d: %d of %d rows are hidden", s, batches-n, batches)
						return
					}
					select {
					case <-ctx.Done():
					case <-time.After(5 * time.Millisecond):
					}
				}
				if n, err := rowsOf(ctx, server, i, first); err != nil || n != 0 {
					t.Errorf("server %d: hidden in the current version, %d rows in the first one, %v", s, n, err)
				}
			})
		}
		out, errs, code := u.starter(t, "takedown", "add", "--lake", lake, "--reason", "test",
			"--prefix", fmt.Sprintf("https://www.site%d.test/%d/", i%domains, i))
		command = append(command, time.Since(began))
		if code != 0 {
			cancel()
			t.Fatalf("takedown add: exit %d\n%s%s", code, out, errs)
		}
		wg.Wait()
		cancel()
		if t.Failed() {
			return
		}
		last = append(last, slices.Max(took))
	}
	slices.Sort(last)
	slices.Sort(command)
	t.Logf("%d takedowns: the command took %v in the median, %v at most; the last of %d servers hid the URL after %v, %v at most",
		takedowns, command[len(command)/2].Round(time.Millisecond), command[len(command)-1].Round(time.Millisecond), len(servers),
		last[len(last)/2].Round(time.Millisecond), last[len(last)-1].Round(time.Millisecond))
	// A machine under load may take a while to start the command.
	if most := last[len(last)-1]; most > 30*time.Second {
		t.Errorf("the last server hid a URL after %v", most)
	}
}
