package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/urlake/urlake/bench/corpus"
)

const (
	// visits is how many domains are looked up in each of two rounds.
	visits = 2000
	// clients is how many clients send requests at once where throughput is measured, for loadTime.
	clients  = 4
	loadTime = 3 * time.Second
	// pageSize is the number of URLs of a page.
	pageSize = 100
	// startTime is how long a server may take to become ready.
	startTime = 2 * time.Minute
)

// served is what was measured of the read server.
type served struct {
	Ready                     float64      // seconds from start to the first answer
	Loaded, LoadedAnon        int64        // resident bytes when ready, and those that are not mapped files
	Used, UsedAnon            int64        // the same after all requests
	Known, FullPages          int          // visited domains that the lake knows; pages with pageSize URLs
	Lookup, Page              [2]latencies // in the server, by round
	LookupClient, PageClient  [2]latencies // as the client sees them, by round
	FullPage                  latencies    // of the second round's pages with pageSize URLs
	LookupsASecond, PagesASec float64
}

// latencies are quantiles in microseconds.
type latencies struct{ P50, P95, P99, Max float64 }

func quantiles(us []float64) (l latencies) {
	if len(us) == 0 {
		return l
	}
	slices.Sort(us)
	at := func(q float64) float64 { return us[int(q*float64(len(us)-1))] }
	return latencies{at(0.5), at(0.95), at(0.99), us[len(us)-1]}
}

func (l latencies) String() string {
	return fmt.Sprintf("p50 %6.0f  p95 %6.0f  p99 %6.0f  max %6.0f", l.P50, l.P95, l.P99, l.Max)
}

// server is a serve process and its access log.
type server struct {
	cmd  *exec.Cmd
	base string

	mu  sync.Mutex
	log []entry
}

// entry is a line of the access log.
type entry struct {
	Msg     string  `json:"msg"`
	Route   string  `json:"route"`
	Status  int     `json:"status"`
	US      float64 `json:"us"`
	Address string  `json:"address"`
}

// startServer starts the program and waits until it is ready.
func startServer(ctx context.Context, program, lakeDir, cache string) (*server, error) {
	s := &server{cmd: exec.CommandContext(ctx, program, "--lake", lakeDir, "--listen", "127.0.0.1:0", "--cache", cache, "--log-format", "json")}
	if mib := os.Getenv("BENCH_SERVE_MEMORY"); mib != "" {
		s.cmd.Args = append(s.cmd.Args, "--memory-limit", mib)
	}
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 10 * time.Second
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			var e entry
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue
			}
			if e.Msg == "listening" {
				address <- e.Address
			}
			if e.Msg == "request" {
				s.mu.Lock()
				s.log = append(s.log, e)
				s.mu.Unlock()
			}
		}
	}()
	wait, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	select {
	case a := <-address:
		s.base = "http://" + a
	case <-wait.Done():
		return nil, errors.Join(errors.New("serve does not listen"), s.stop())
	}
	for {
		if _, _, err := s.get(wait, "/readyz"); err == nil {
			return s, nil
		}
		select {
		case <-wait.Done():
			return nil, errors.Join(errors.New("serve does not become ready"), s.stop())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the process and waits for it.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// get returns the body of an answer and the microseconds until it was read. A status other than 200
// is an error.
func (s *server) get(ctx context.Context, path string) ([]byte, float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return nil, 0, err
	}
	started := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	us := float64(time.Since(started).Nanoseconds()) / 1e3
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, resp.Status, body)
	}
	return body, us, err
}

// take waits until the access log has n lines, returns them and empties it. A line is written after
// its answer.
func (s *server) take(ctx context.Context, n int) ([]entry, error) {
	for {
		s.mu.Lock()
		log := s.log
		if len(log) >= n {
			s.log = nil
			s.mu.Unlock()
			return log, nil
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// resident returns the resident memory of the process in bytes, and the part that is not mapped
// files.
func (s *server) resident() (total, anon int64, err error) {
	total, err = procStatus(s.cmd.Process.Pid, "VmRSS")
	if err == nil {
		anon, err = procStatus(s.cmd.Process.Pid, "RssAnon")
	}
	return total, anon, err
}

// measureServe builds and starts the server, and requests domains of a corpus, large ones more
// often.
func measureServe(ctx context.Context, root string, lists corpus.Options, lakeDir, dir string) (*served, error) {
	program := filepath.Join(dir, "serve")
	compile := exec.CommandContext(ctx, "go", "build", "-C", root, "-o", program, "./serve")
	compile.Stderr = os.Stderr
	if err := compile.Run(); err != nil {
		return nil, fmt.Errorf("build serve: %w", err)
	}
	started := time.Now()
	s, err := startServer(ctx, program, lakeDir, filepath.Join(dir, "cache"))
	if err != nil {
		return nil, err
	}
	out := &served{Ready: time.Since(started).Seconds()}
	err = s.measure(ctx, lists, out)
	return out, errors.Join(err, s.stop())
}

func (s *server) measure(ctx context.Context, lists corpus.Options, out *served) (err error) {
	if out.Loaded, out.LoadedAnon, err = s.resident(); err != nil {
		return err
	}
	c, err := corpus.New(lists)
	if err != nil {
		return err
	}
	state := uint64(42)
	var lookups, pages []string
	for range visits {
		lookups = append(lookups, "/v1/domain/"+c.Sample(&state))
	}
	if _, err := s.take(ctx, 1); err != nil { // the requests for readiness
		return err
	}
	var full []bool
	for round := range 2 {
		var client []float64
		for _, path := range lookups {
			body, us, err := s.get(ctx, path)
			if err != nil {
				return err
			}
			client = append(client, us)
			if round == 0 {
				var answer struct {
					Datasets []struct {
						DatasetID uint32 `json:"dataset_id"`
					} `json:"datasets"`
				}
				if err := json.Unmarshal(body, &answer); err != nil {
					return fmt.Errorf("GET %s: %w", path, err)
				}
				if n := len(answer.Datasets); n > 0 {
					out.Known++
					dataset := answer.Datasets[len(pages)%n].DatasetID
					pages = append(pages, fmt.Sprintf("%s/datasets/%d/urls?limit=%d", path, dataset, pageSize))
				}
			}
		}
		out.LookupClient[round] = quantiles(client)
		log, err := s.take(ctx, len(lookups))
		if err != nil {
			return err
		}
		out.Lookup[round] = quantiles(micros(log))

		client = nil
		for _, path := range pages {
			body, us, err := s.get(ctx, path)
			if err != nil {
				return err
			}
			client = append(client, us)
			if round == 0 {
				var answer struct {
					Items []json.RawMessage `json:"items"`
				}
				if err := json.Unmarshal(body, &answer); err != nil {
					return fmt.Errorf("GET %s: %w", path, err)
				}
				if len(answer.Items) == 0 {
					return fmt.Errorf("GET %s: no URLs of a domain that the dataset holds", path)
				}
				full = append(full, len(answer.Items) == pageSize)
			}
		}
		out.PageClient[round] = quantiles(client)
		if log, err = s.take(ctx, len(pages)); err != nil {
			return err
		}
		all := micros(log)
		if round == 1 {
			var hundred []float64
			for i, us := range all {
				if full[i] {
					hundred = append(hundred, us)
				}
			}
			out.FullPages, out.FullPage = len(hundred), quantiles(hundred)
		}
		out.Page[round] = quantiles(all)
	}
	if out.LookupsASecond, err = s.load(ctx, lookups); err != nil {
		return err
	}
	if out.PagesASec, err = s.load(ctx, pages); err != nil {
		return err
	}
	out.Used, out.UsedAnon, err = s.resident()
	return err
}

// micros returns the times of an access log, whose requests were made one after the other.
func micros(log []entry) []float64 {
	us := make([]float64, len(log))
	for i, e := range log {
		us[i] = e.US
	}
	return us
}

// load requests paths with several clients at once and returns answers a second.
func (s *server) load(ctx context.Context, paths []string) (float64, error) {
	if len(paths) == 0 {
		return 0, nil
	}
	started := time.Now()
	counts, errs := make([]int, clients), make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := i * len(paths) / clients; time.Since(started) < loadTime; n++ {
				if _, _, errs[i] = s.get(ctx, paths[n%len(paths)]); errs[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	rate := float64(total) / time.Since(started).Seconds()
	return rate, errors.Join(errs...)
}
