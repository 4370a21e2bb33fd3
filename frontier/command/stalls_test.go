//go:build unix

package command

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
)

// stallsEnv makes a process of the tests one that looks for stalls.
const stallsEnv = "URLAKE_BENCH_STALLS"

// leastStall is the shortest time that counts as a stall.
const leastStall = 3 * time.Millisecond

// stalls are the times in which a processor of the machine did not run what had to run first: the
// machine stood still, or its kernel did something else. No program answers in that time, so what
// it needs itself is only seen beside it.
type stalls struct {
	watched bool // false if the processors cannot be watched here
	mu      sync.Mutex
	all     []stall
}

type stall struct{ from, to time.Time }

// watchStalls watches each processor, with a process that sleeps for a millisecond at a time, comes
// before all others, and reports when it has slept for longer.
func watchStalls(b *testing.B) *stalls {
	s := &stalls{}
	for n := range runtime.NumCPU() {
		cmd := exec.CommandContext(b.Context(), "taskset", "-c", strconv.Itoa(n), "nice", "-n", "-20", os.Args[0])
		cmd.Env = append(os.Environ(), stallsEnv+"=1", "GOMAXPROCS=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if cmd.Start() != nil {
			return s
		}
		go func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var from, to int64
				if _, err := fmt.Sscan(lines.Text(), &from, &to); err == nil {
					s.mu.Lock()
					s.all = append(s.all, stall{time.Unix(0, from), time.Unix(0, to)})
					s.mu.Unlock()
				}
			}
			_ = cmd.Wait()
		}()
	}
	s.watched = true
	return s
}

// printStalls is a process of watchStalls.
func printStalls() {
	for last := time.Now(); ; {
		time.Sleep(time.Millisecond)
		now := time.Now()
		if now.Sub(last) >= leastStall {
			fmt.Println(last.UnixNano(), now.UnixNano())
		}
		last = now
	}
}

// between returns the time that the machine's processors stood still, on average, from a time on
// and for so long, and of each tenth of a second of that whether one did then or in the tenth
// before.
func (s *stalls) between(from time.Time, d time.Duration) (sum time.Duration, disturbed map[time.Duration]bool) {
	disturbed = map[time.Duration]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stall := range s.all {
		begin, end := max(stall.from.Sub(from), 0), min(stall.to.Sub(from), d)
		if begin >= end {
			continue
		}
		sum += (end - begin) / time.Duration(runtime.NumCPU())
		for t := begin / tenth; t <= end/tenth+1; t++ {
			disturbed[t] = true
		}
	}
	return sum, disturbed
}
