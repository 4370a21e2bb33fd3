package detect

import (
	"errors"
	"strings"
	"testing"

	"github.com/urlake/urlake/lake/raw"
)

func TestFormatsThatAreNotReadAreNamed(t *testing.T) {
	noise := strings.Repeat("\x00\x01\x02\x83\x94a", 50)
	for _, tc := range []struct{ name, head, reason, command string }{
		{"a.7z", "7z\xbc\xaf\x27\x1c" + noise, "7z", "7z x"},
		{"crawl.warc.7z", "7z\xbc\xaf\x27\x1c" + noise, "7z", "7z x"},
		{"a.rar", "Rar!\x1a\x07\x00" + noise, "rar", "7z x"},
		{"a.lz4", "\x04\x22\x4d\x18" + noise, "lz4", "lz4 -d"},
		{"a.br", "\x8b" + noise, "brotli", "brotli -d"},
		{"a.lzma", "\x5d\x00\x00\x80\x00" + noise, "lzma", "xz -d"},
		{"a.sz", "\xff\x06\x00\x00sNaPpY" + noise, "snappy", "snzip"},
		{"a.xls", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + noise, "xls", "soffice"},
		{"a.rtf", `{\rtf1\ansi http://a/}`, "RTF", "pandoc"},
		{"a.pdf", "%PDF-1.4\n1 0 obj", "PDF", "pdftotext"},
		{"places.sqlite", "SQLite format 3\x00" + noise + "CREATE TABLE moz_places (id", "Firefox", "moz_places"},
		{"History", "SQLite format 3\x00" + noise + "CREATE TABLE urls(id INTEGER", "Chrome", "FROM urls"},
		{"a.db", "SQLite format 3\x00" + noise, "SQLite", "sqlite3"},
		{"a.avro", "Obj\x01\x04\x14avro.codec", "Avro", "avro-tools"},
		{"a.orc", "ORC" + noise, "ORC", "pyarrow"},
		{"a.feather", "ARROW1\x00\x00" + noise, "Arrow", "pyarrow"},
		{"a.arrows", "\xff\xff\xff\xff\x10\x01\x00\x00" + noise, "Arrow", "pyarrow"},
		{"a.pkl", "\x80\x04\x95\x10" + noise, "pickle", "pandas"},
		{"a.h5", "\x89HDF\r\n\x1a\n" + noise, "HDF5", "pandas"},
		{"a.msgpack", "\x83" + noise, "MessagePack", "msgpack2json"},
		{"a.pb", "\x0a" + noise, "Protocol", "strings"},
		{"a.pcap", "\xd4\xc3\xb2\xa1" + noise, "network", "tshark"},
		{"dump.sql", "-- MySQL dump 10.13\n--\n\nINSERT INTO `t` VALUES (1,'http://a/');\n", "SQL", "grep"},
		{"dump.sql", "--\n-- PostgreSQL database dump\n--\n\nCOPY public.t (id, url) FROM stdin;\n1\thttp://a/\n\\.\n", "SQL", "grep"},
		{"a.dump", "PGDMP\x01\x0e" + noise, "PostgreSQL", "pg_restore"},
		{"a.png", "\x89PNG\r\n\x1a\n" + noise, "images", "--exclude"},
		{"a", "\x7fELF\x02" + noise, "programs", "strings"},
		{"a.exe", "MZ\x90\x00" + noise, "programs", "strings"},
		{"a.gpg", "\x85\x02\x0c" + noise, "encrypted", "gpg -d"},
		{"a.asc", "-----BEGIN PGP MESSAGE-----\n\nhQEM", "encrypted", "gpg -d"},
		{"a.tar", strings.Repeat("\x00", 10240), "zero bytes", "--exclude"},
		{"a.bin", noise, "binary", "file FILE"},
		{"a.json", ")]}'\n[{\"url\": \"http://a/\"}]", "JSONP", "sed"},
		{"u_ex.log", "#Software: IIS\n#Fields: date time c-ip cs-method cs(Referer)\n2016-03-04 05:06:07 192.0.2.1 GET http://a.com/\n", "access log", "lines"},
		{"a.log", "2016-03-04 05:06:07 [scrapy] DEBUG: Crawled (200) <GET http://a.com/x>\n2016-03-04 05:06:08 [scrapy] DEBUG: Crawled (200) <GET http://b.com/y>\n", "brackets", "grep"},
		{"a.json", `{"a":"http://a.com/","b":"http://b.com/","c":"http://c.com/"}`, "members are URLs", "jq"},
		{"a.json", `{"@context":"https://schema.org","itemListElement":[{"item":{"@id":"http://a/"}}]}`, "looks like a URL", "jq"},
	} {
		_, err := Detect(tc.name, []byte(tc.head), raw.Options{})
		var fe *raw.FormatError
		if !errors.As(err, &fe) || !strings.Contains(fe.Reason, tc.reason) || !strings.Contains(fe.Advice, tc.command) {
			t.Errorf("%s: got %v, want %q and %q", tc.name, err, tc.reason, tc.command)
		}
	}
	// Text may begin as they do.
	for _, text := range []string{"MZ.example\nb.example\n", "ORC.example\n", "ID3.example/a\n", "X\n", "GIF8.example\n",
		"--a.example\n", "/a\nINSERT.example\n"} {
		if _, err := Detect("a.txt", []byte(text), raw.Options{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
