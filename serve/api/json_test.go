package api

import (
	"bytes"
	"testing"
)

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
