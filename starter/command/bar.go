package command

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"golang.org/x/term"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/workflows"
)

// bar shows the progress of one task. On a terminal it is one line with a percentage, a bar and a
// text, written again with each change. Elsewhere, in a log for example, it prints the text when a
// stage begins and every plainInterval. What it shows never goes back. A nil bar, and one with
// neither, show nothing.
//
// A library (schollz/progressbar) drew text and percentage one after the other, so that 211 of 528
// MiB stood beside 0 %, let counts go back, and never drew the end. One line that is drawn at once
// needs no library.
type bar struct {
	terminal io.Writer
	columns  func() int // of the terminal
	plain    io.Writer
	stage    string
	printed  time.Time // when plain last got a line
	fraction float64   // the largest so far
	text     string    // what the terminal showed last
	visible  bool      // whether the terminal shows it now
}

const (
	// barWidth is the width of the bar in columns if the terminal is wide enough for it and the
	// text. With fewer than minBarWidth columns there is a percentage only.
	barWidth    = 24
	minBarWidth = 5
	// barRest is how many columns the percentage, and the column that stays free, take.
	barRest = 8
	// wideTerminal is the number of columns from which the text has full numbers, not short ones.
	wideTerminal = 112
	// plainInterval is the time between two lines of one stage where there is no terminal.
	plainInterval = 10 * time.Second
)

// newBar returns a bar on w, or one that shows nothing if json is set.
func newBar(w io.Writer, json bool) *bar {
	f, ok := w.(*os.File)
	switch {
	case json:
		return &bar{}
	case !ok || !isatty.IsTerminal(f.Fd()):
		return &bar{plain: w}
	}
	return &bar{terminal: w, columns: func() int {
		columns, _, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 {
			columns = 80
		}
		return columns
	}}
}

// interval returns how often the bar wants to know the progress.
func (b *bar) interval() time.Duration {
	if b != nil && b.terminal != nil {
		return pollInterval
	}
	return slowPollInterval
}

// show shows that a task is in a stage and done to fraction, from 0 to 1. Text describes it, with
// counts that it formats with number. A smaller fraction than one shown before is taken for that.
func (b *bar) show(fraction float64, stage string, now time.Time, text func(number func(int64) string) string) {
	if b == nil || stage == workflows.StageDone { // finish shows that
		return
	}
	b.fraction = max(b.fraction, min(fraction, 1))
	switch {
	case b.terminal != nil:
		number := count
		if b.columns() < wideTerminal {
			number = short
		}
		b.text = cli.Escape(text(number))
		b.draw()
	case b.plain != nil && (b.stage != stage || now.Sub(b.printed) >= plainInterval):
		cli.Fprintf(b.plain, "%s\n", text(count))
		b.printed = now
	}
	b.stage = stage
}

// draw writes the terminal's line.
func (b *bar) draw() {
	columns := b.columns()
	text := b.text[:min(len(b.text), max(0, columns-barRest))]
	var drawn string
	percent := int(100 * b.fraction)
	// The bar has a bracket at each end and a space behind it.
	if width := min(barWidth, columns-barRest-len(text)-3); width >= minBarWidth {
		done := percent * width / 100
		drawn = "[" + strings.Repeat("#", done) + strings.Repeat("-", width-done) + "] "
	}
	fmt.Fprintf(b.terminal, "\r\x1b[K%3d %%  %s%s", percent, drawn, text)
	b.visible = true
}

// clear removes the bar from the terminal's line, so that another line can be printed.
func (b *bar) clear() {
	if b != nil && b.visible {
		fmt.Fprint(b.terminal, "\r\x1b[K")
		b.visible = false
	}
}

// finish ends the bar's line. A task that succeeded is left at 100 %; of another nothing is left.
func (b *bar) finish(err error) {
	if b == nil || b.terminal == nil || b.text == "" {
		return
	}
	if err != nil {
		b.clear()
		return
	}
	b.fraction, b.text = 1, "done"
	b.draw()
	fmt.Fprintln(b.terminal)
	b.visible = false
}
