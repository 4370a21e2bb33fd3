package inventory

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// endless repeats a text.
type endless struct {
	text string
	read int64
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[(e.read+int64(i))%int64(len(e.text))]
	}
	e.read += int64(len(p))
	return len(p), nil
}

// A row without end is an error before much of it is in memory: one line, or a quote that nothing
// closes. Rows up to the limit are read, however many there are.
func TestRowsAreBounded(t *testing.T) {
	for _, text := range []string{"x", "x,", "x\n"} {
		in := &endless{text: text}
		err := CSV{}.Read(io.MultiReader(strings.NewReader("key\na\n\"b\"\n\""), in), func(Object) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "is a quote not closed?") {
			t.Errorf("%q: %v", text, err)
		}
		if in.read > 4*maxRow {
			t.Errorf("%q: %d bytes were read", text, in.read)
		}
	}
	long := strings.Repeat("x\n", 25_000)
	rows := 0
	err := CSV{}.Read(strings.NewReader("key\n"+strings.Repeat("\""+long+"\"\ny\n", 20)), func(o Object) error {
		if rows++; o.Key != "y" && o.Key != long {
			return fmt.Errorf("row %d has %d bytes", rows, len(o.Key))
		}
		return nil
	})
	if err != nil || rows != 40 {
		t.Errorf("%d rows: %v", rows, err)
	}
	stop := errors.New("stop")
	if err := (CSV{}).Read(strings.NewReader("key\na\n"), func(Object) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}
