package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// firstPause is how long a program that ended stays down, lastPause the longest it does: the
	// pause doubles each time, until the program has run for steady.
	firstPause = 200 * time.Millisecond
	lastPause  = 30 * time.Second
	steady     = time.Minute
	// stopTimeout is how long one program may take to stop. A worker waits up to 15 seconds for its
	// steps, a server up to 30 for its requests.
	stopTimeout = 35 * time.Second
)

// Program is a program of a group.
type Program struct {
	// Name is short; it begins each line of the program's output.
	Name string
	Path string
	Args []string
	// Env are further variables, as "name=value".
	Env []string
}

// Group keeps programs running. A program that ends is started again, after a pause that grows each
// time. All write to one log, a line at a time.
type Group struct {
	log     *Log
	ctx     context.Context // ends when the group is to stop
	cancel  context.CancelFunc
	members []*member // in the order of their start
}

type member struct {
	Program
	ended chan struct{} // closed when the program does not run and will not be started again
	stop  chan struct{} // closed to stop it
	err   error         // of its stop

	mu       sync.Mutex
	failures int
}

// NewGroup returns a group without programs.
func NewGroup(log *Log) *Group {
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{log: log, ctx: ctx, cancel: cancel}
}

// Add starts a program. An error means that it cannot be started at all.
func (g *Group) Add(p Program) error {
	m := &member{Program: p, ended: make(chan struct{}), stop: make(chan struct{})}
	running, err := g.start(p)
	if err != nil {
		return err
	}
	g.members = append(g.members, m)
	go func() {
		defer close(m.ended)
		m.err = g.keep(m, running)
	}()
	return nil
}

func (g *Group) start(p Program) (*Process, error) {
	return Start(p.Name, g.log.Of(p.Name), p.Env, p.Path, p.Args...)
}

// keep runs a program until it is to stop, and returns the error of the stop.
func (g *Group) keep(m *member, running *Process) error {
	pause := firstPause
	for {
		began := time.Now()
		select {
		case <-m.stop:
			return running.Stop(stopTimeout)
		case <-running.Done():
		}
		if time.Since(began) >= steady {
			pause = firstPause
		}
		for {
			how := "it does not start"
			if running != nil {
				how = running.End()
			}
			if running == nil || !running.Killed() {
				m.mu.Lock()
				m.failures++
				m.mu.Unlock()
			}
			if g.ctx.Err() == nil {
				g.log.Printf("%s ended (%s); it is started again in %s", m.Name, how, pause)
			}
			select {
			case <-m.stop:
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, lastPause)
			var err error
			if running, err = g.start(m.Program); err == nil {
				break
			}
			g.log.Printf("%v", err)
			running = nil
		}
	}
}

// Failures returns how often programs did not start or ended by themselves. A killed program does
// not count: it may be sound.
func (g *Group) Failures() (n int) {
	for _, m := range g.members {
		m.mu.Lock()
		n += m.failures
		m.mu.Unlock()
	}
	return n
}

// Stop stops all programs in the reverse order of their start and waits for them. Programs that do
// not stop are killed and named in the error.
func (g *Group) Stop() error {
	g.cancel()
	var errs []error
	for i := len(g.members) - 1; i >= 0; i-- {
		m := g.members[i]
		close(m.stop)
		<-m.ended
		errs = append(errs, m.err)
	}
	return errors.Join(errs...)
}

// Log is a log of several programs. Each line begins with the name of its program.
type Log struct {
	mu    sync.Mutex
	w     io.Writer
	self  string
	width int
	tail  []string
}

// tailLines is how many lines Tail returns at most.
const tailLines = 20

// NewLog returns a log that goes to w. Self is the name of this program, names are those of others,
// to align their lines.
func NewLog(w io.Writer, self string, names ...string) *Log {
	l := &Log{w: w, self: self, width: len(self)}
	for _, n := range names {
		l.width = max(l.width, len(n))
	}
	return l
}

// Printf writes a line of this program.
func (l *Log) Printf(format string, args ...any) {
	l.line(l.self, fmt.Sprintf(format, args...))
}

// Of returns a writer for the output of a program. What it gets is written a whole line at a time.
func (l *Log) Of(name string) io.Writer { return &lines{log: l, name: name} }

// Tail returns the last lines.
func (l *Log) Tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.tail...)
}

func (l *Log) line(name, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf("%-*s | %s", l.width, name, text)
	if l.tail = append(l.tail, line); len(l.tail) > tailLines {
		l.tail = l.tail[1:]
	}
	_, _ = fmt.Fprintln(l.w, line) // if nobody reads the log, the programs run on
}

// maxLine is how much of a line is kept until its end comes. A longer one is divided.
const maxLine = 64 << 10

// lines divides what is written into lines.
type lines struct {
	log  *Log
	name string
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) > maxLine {
			end = maxLine
			l.rest = append(l.rest[:end+1], l.rest[end:]...)
		}
		if end < 0 {
			return len(p), nil
		}
		if text := bytes.TrimRight(l.rest[:end], "\r"); len(bytes.TrimSpace(text)) > 0 {
			l.log.line(l.name, string(text))
		}
		l.rest = append(l.rest[:0], l.rest[end+1:]...)
	}
}
