//go:build unix

package command

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

// A process that FRONTIERD_TEST makes watchStalls is one that watches the processor which
// FRONTIERD_TEST_PROCESSOR has.
const (
	watchStalls  = "stalls"
	processorEnv = "FRONTIERD_TEST_PROCESSOR"
	stallsReady  = "ready"
)

// leastStall is the shortest time that counts as a stall.
const leastStall = 3 * time.Millisecond

// stalls are the times in which a processor of the machine did not run what has to run first: the
// machine stood still, or its kernel did something, for whomever. No program answers in that time,
// so what it needs itself is only seen beside it.
type stalls struct {
	processors int
	mu         sync.Mutex
	ended      bool // a process that watches has ended, so nothing is known
	all        []stall
}

type stall struct{ from, to time.Time }

// newStalls watches each processor, with a process that sleeps for a millisecond at a time, comes
// before all others, and reports when it has slept for longer. It returns nil if that cannot be
// done here.
func newStalls(b *testing.B) *stalls {
	s := &stalls{}
	ctx, cancel := context.WithCancel(b.Context())
	b.Cleanup(cancel)
	for _, n := range processors() {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), "FRONTIERD_TEST="+watchStalls, processorEnv+"="+strconv.Itoa(n), "GOMAXPROCS=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != stallsReady {
			cancel()
			_ = cmd.Wait()
			return nil
		}
		s.processors++
		b.Cleanup(func() {
			cancel()
			_ = cmd.Wait()
		})
		go s.read(lines)
	}
	if s.processors == 0 {
		return nil
	}
	return s
}

func (s *stalls) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var from, to int64
		if _, err := fmt.Sscan(lines.Text(), &from, &to); err == nil {
			s.mu.Lock()
			s.all = append(s.all, stall{time.Unix(0, from), time.Unix(0, to)})
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// printStalls is a process that watches a processor.
func printStalls() {
	n, err := strconv.Atoi(os.Getenv(processorEnv))
	if err == nil {
		err = runFirst(n)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stallsReady)
	for last := time.Now(); ; {
		nap(time.Millisecond)
		now := time.Now()
		if now.Sub(last) >= leastStall {
			fmt.Println(last.UnixNano(), now.UnixNano())
		}
		last = now
	}
}

// between returns for how long the processors stood still, on average, from a time on for so long,
// and of each tenth of a second of that whether one did then or in the tenth before. It is false if
// that is not known.
func (s *stalls) between(from time.Time, d time.Duration) (sum time.Duration, disturbed map[time.Duration]bool, ok bool) {
	if s == nil {
		return 0, nil, false
	}
	disturbed = map[time.Duration]bool{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stall := range s.all {
		begin, end := max(stall.from.Sub(from), 0), min(stall.to.Sub(from), d)
		if begin >= end {
			continue
		}
		sum += (end - begin) / time.Duration(s.processors)
		for t := begin / tenth; t <= end/tenth+1; t++ {
			disturbed[t] = true
		}
	}
	return sum, disturbed, !s.ended
}
