package api

import (
	"bytes"
	"testing"
	"time"
)

func TestAppendTime(t *testing.T) {
	for _, ms := range []int64{
		0, -1, 1, 999, 1_700_000_000_123, -62_135_596_800_000, 253_402_300_799_999, -62_167_219_200_000,
	} {
		want := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
		if got := string(appendTime(nil, ms)); got != want {
			t.Errorf("%d: got %s, want %s", ms, got, want)
		}
	}
}

func TestDocument(t *testing.T) {
	var d document
	d.open('{')
	d.text("text", "a\"b")
	d.textOrNull("empty", "")
	d.id("id", 0x0123456789abcdef)
	d.array("list")
	for i := range 2 {
		d.element()
		d.number("n", int64(i))
		d.timeOrNull("ts", 0, i == 1)
		d.close('}')
	}
	d.close(']')
	d.object("inner")
	d.boolean("yes", true)
	d.close('}')
	d.close('}')
	want := `{"text":"a\"b","empty":null,"id":"0123456789abcdef","list":[{"n":0,"ts":null},` +
		`{"n":1,"ts":"1970-01-01T00:00:00.000Z"}],"inner":{"yes":true}}`
	if !bytes.Equal(d.buf, []byte(want)) {
		t.Fatalf("got  %s\nwant %s", d.buf, want)
	}
}
