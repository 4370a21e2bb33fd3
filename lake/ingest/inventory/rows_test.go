package inventory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/urlake/urlake/internal/testenv"
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

// TestFlags reads the spellings of true and false that databases and spreadsheets write.
func TestFlags(t *testing.T) {
	for _, pair := range []string{"true,false", "True,False", "TRUE,FALSE", "t,f", "1,0", "yes,no", "Y,N", " true , false", "on,off"} {
		yes, no, _ := strings.Cut(pair, ",")
		var keys []string
		text := fmt.Sprintf("Key,IsLatest,IsDeleteMarker\nnow,%s,%s\nbefore,%s,%s\ngone,%s,%s\nplain,,\n", yes, no, no, no, yes, yes)
		err := CSV{}.Read(strings.NewReader(text), func(o Object) error {
			if !o.Old {
				keys = append(keys, o.Key)
			}
			return nil
		})
		if got := strings.Join(keys, " "); got != "now plain" || err != nil {
			t.Errorf("%s: got %q, error %v", pair, got, err)
		}
	}
	for _, column := range []string{"IsLatest", "is_delete_marker"} {
		err := CSV{}.Read(strings.NewReader("Key,"+column+"\na,true\nb,wahr\n"), func(Object) error { return nil })
		want := fmt.Sprintf("line 3: the column %s of b is \"wahr\", want true or false", strings.ToLower(strings.ReplaceAll(column, "_", "")))
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestSharedFlags(t *testing.T) {
	f, err := os.Open(testenv.Shared(t, "cases/inventory-booleans/upper.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	objects, size := 0, int64(0)
	err = CSV{}.Read(f, func(o Object) error {
		if !o.Old {
			objects++
			size += o.Size
		}
		return nil
	})
	if objects != 1 || size != 10 || err != nil {
		t.Errorf("%d objects of %d bytes, error %v; want 1 of 10", objects, size, err)
	}
}
