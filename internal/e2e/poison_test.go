package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/workflows"
)

// The environment of a poisonous worker: the lake, and the folder that stands for every bucket.
const (
	poisonLake   = "URLAKE_TEST_POISON_LAKE"
	poisonBucket = "URLAKE_TEST_POISON_BUCKET"
)

// poisonous is a bucket whose object poison.txt kills the process that reads it behind its first
// MiB. Other objects wait for that a while, so that their steps are at work when it happens.
type poisonous struct {
	blob.Store
	opened chan struct{} // closed when poison.txt is opened
	once   *sync.Once
	atWork chan struct{} // gets a value from a reader of another object
}

func (p poisonous) Open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := p.Store.Open(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	return &poisonousReader{ReadCloser: r, bucket: p, poison: key == "poison.txt"}, nil
}

type poisonousReader struct {
	io.ReadCloser
	bucket poisonous
	poison bool
	read   int
}

func (r *poisonousReader) Read(b []byte) (int, error) {
	if r.read > 1<<20 {
		if r.poison {
			r.bucket.once.Do(func() { close(r.bucket.opened) })
			select {
			case <-r.bucket.atWork:
			case <-time.After(time.Second): // nothing else runs
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		select {
		case <-r.bucket.opened:
			select {
			case r.bucket.atWork <- struct{}{}:
			case <-time.After(time.Second): // another reader was seen
			}
			select {} // until the poison takes effect
		case <-time.After(3 * time.Second):
		}
		r.read = 0
	}
	n, err := r.ReadCloser.Read(b)
	r.read += n
	return n, err
}

// poisonousWorker runs all pools of a lake, and reads inputs from a poisonous bucket.
func poisonousWorker() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	bucket, err := blob.NewLocal(os.Getenv(poisonBucket))
	if err != nil {
		return err
	}
	inputs := poisonous{bucket, make(chan struct{}), new(sync.Once), make(chan struct{})}
	blob.Register("s3", func(context.Context, string) (blob.Store, error) { return inputs, nil })
	url := os.Getenv(poisonLake)
	store, err := blob.Open(ctx, url)
	if err != nil {
		return err
	}
	c, err := client.DialContext(ctx, client.Options{HostPort: os.Getenv("TEMPORAL_ADDRESS")})
	if err != nil {
		return err
	}
	defer c.Close()
	base := activities.Lake{Store: store, URL: url, TempDir: os.TempDir(), Memory: activities.NewMemory(4 << 30)}
	for pool, register := range map[string]func(w worker.Worker){
		activities.PoolControl: func(w worker.Worker) {
			w.RegisterWorkflow(workflows.IngestWorkflow)
			w.RegisterActivity(&activities.Control{Lake: base, Temporal: c})
		},
		activities.PoolNormalize: func(w worker.Worker) { w.RegisterActivity(&activities.Normalize{Lake: base}) },
		activities.PoolWrite:     func(w worker.Worker) { w.RegisterActivity(&activities.Write{Lake: base}) },
		activities.PoolIndex:     func(w worker.Worker) { w.RegisterActivity(&activities.Index{Lake: base}) },
	} {
		w := worker.New(c, activities.TaskQueue(url, pool), worker.Options{
			MaxHeartbeatThrottleInterval: time.Second, WorkerStopTimeout: 10 * time.Second,
			DisableWorkflowWorker: pool != activities.PoolControl,
		})
		register(w)
		if err := w.Start(); err != nil {
			return err
		}
		defer w.Stop()
	}
	<-ctx.Done()
	return nil
}

// TestPoisonIsContained ingests three lists at once, one of which kills every worker that reads it.
// That one has to fail with its name; the others, whose steps die with the workers, have to
// succeed. It takes three heartbeat timeouts.
func TestPoisonIsContained(t *testing.T) {
	t.Parallel()
	dir, bucket := t.TempDir(), t.TempDir()
	lake := "file://" + dir
	u := start(t, lake, nil)
	for _, name := range []string{"one.txt", "poison.txt", "two.txt"} {
		var list strings.Builder
		for i := 0; list.Len() < 3<<20; i++ {
			fmt.Fprintf(&list, "http://%s.example/%d\n", strings.TrimSuffix(name, ".txt"), i)
		}
		if err := os.WriteFile(filepath.Join(bucket, name), []byte(list.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.DialContext(t.Context(), client.Options{HostPort: u.temporal})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	runs := map[string]client.WorkflowRun{}
	for _, name := range []string{"one", "poison", "two"} {
		in := workflows.IngestInput{NoPublish: true}
		in.Lake, in.Dataset, in.Batch, in.Inputs = lake, name, "b", []string{"s3://in/" + name + ".txt"}
		runs[name], err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
			ID: name, TaskQueue: activities.TaskQueue(lake, activities.PoolControl)}, workflows.IngestWorkflow, in)
		if err != nil {
			t.Fatal(err)
		}
	}

	// A supervisor starts the worker again whenever it dies.
	over, done, deaths := make(chan struct{}), make(chan struct{}), 0
	var out syncBuffer
	go func() {
		defer close(done)
		for {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(u.env, poisonLake+"="+lake, poisonBucket+"="+bucket)
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			died := make(chan struct{})
			go func() { _ = cmd.Wait(); close(died) }()
			select {
			case <-died:
				deaths++
			case <-over:
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-died
				return
			}
		}
	}()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	for name, run := range runs {
		var r workflows.IngestResult
		err := run.Get(ctx, &r)
		if name != "poison" {
			if err != nil || r.Records == 0 {
				t.Errorf("%s: %d records, %v", name, r.Records, err)
			}
			continue
		}
		for _, want := range []string{"s3://in/poison.txt: it killed its worker 3 times", "--exclude"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("poison: error %v, want %q", err, want)
			}
		}
	}
	close(over)
	<-done
	if deaths != 3 {
		t.Errorf("%d workers died, want 3", deaths)
	}
	if t.Failed() {
		t.Logf("the workers printed:\n%s", out.String())
	}
}
