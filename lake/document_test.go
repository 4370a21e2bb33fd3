package lake_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/codec"
)

func TestBatchRecordIsAsItsPageShows(t *testing.T) {
	digest := lake.Digest([]byte("content"))
	object := func(key string) lake.Object { return lake.Object{Key: key, Bytes: 4711, XXH64: "0123456789abcdef"} }
	rejects := object(lake.RejectsKey(1, "2024-11", digest))
	b := &lake.Batch{
		Format: lake.BatchFormat, DatasetID: 1, Batch: "2024-11", CanonicalForm: lake.CurrentRules().CanonicalForm, PublicSuffix: lake.CurrentRules().PublicSuffix,
		Inputs: []lake.Input{
			{Name: "file:///data/seeds.csv.gz", Bytes: 120_000, Format: "csv+gzip", Records: 1000, Rejects: 2},
			{Name: "s3://raw/more/seeds.txt", Bytes: 64_000, Format: "lines", Records: 500},
		},
		Records: 1500, Rows: 1400, Merged: 98, Rejected: map[string]int64{"scheme": 1, "host": 1}, Domains: 321,
		Parts:    []lake.Part{{Object: object(lake.PartKey(1, lake.AnyPrefix, "2024-11", digest, 0)), DomainPrefix: lake.AnyPrefix, Rows: 1400, RowGroups: 1}},
		Postings: []lake.FrameObject{{Object: object(lake.PostingsKey(1, "2024-11", digest)), FooterBytes: 100, FooterXXH64: "fedcba9876543210"}},
		Rejects:  &rejects,
	}
	data, name, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "batch.md", "json", string(data))
	got, err := lake.DecodeBatch(data, lake.BatchKey(1, "2024-11", name))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, got); diff != "" {
		t.Errorf("decoded, the record differs (-want +got):\n%s", diff)
	}
	for _, key := range []string{lake.BatchKey(2, "2024-11", name), lake.BatchKey(1, "2024-12", name), lake.BatchKey(1, "2024-11", digest)} {
		if _, err := lake.DecodeBatch(data, key); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("read as %s: %v", key, err)
		}
	}
	for i := range data {
		bad := []byte(string(data))
		bad[i] ^= 4
		if _, err := lake.DecodeBatch(bad, lake.BatchKey(1, "2024-11", lake.Digest(bad))); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
}

func TestUnionIsAsItsPageShows(t *testing.T) {
	members := []lake.Member{{Batch: "2024-11", Digest: lake.Digest([]byte("a")), Rows: 1400}, {Batch: "2024-12", Digest: lake.Digest([]byte("b")), Rows: 2000}}
	name := lake.UnionName(lake.UnionDigest(members, nil))
	digest := lake.Digest([]byte("content"))
	object := func(key string) lake.Object { return lake.Object{Key: key, Bytes: 9422, XXH64: "0123456789abcdef"} }
	union := func() *lake.Batch {
		return &lake.Batch{
			DatasetID: 1, Batch: name, CanonicalForm: "urlake-1", PublicSuffix: lake.CurrentRules().PublicSuffix,
			Members: members, Inputs: []lake.Input{}, Records: 3400, Rows: 3400, Rejected: map[string]int64{}, Domains: 400,
			Parts:    []lake.Part{{Object: object(lake.PartKey(1, lake.AnyPrefix, name, digest, 0)), DomainPrefix: lake.AnyPrefix, Rows: 3400, RowGroups: 1}},
			Postings: []lake.FrameObject{{Object: object(lake.PostingsKey(1, name, digest)), FooterBytes: 100, FooterXXH64: "fedcba9876543210"}},
		}
	}
	data, digest, err := union().Encode()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "batch.md", "json union", string(data))
	if _, err := lake.DecodeBatch(data, lake.BatchKey(1, name, digest)); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(b *lake.Batch){
		"other rows":       func(b *lake.Batch) { b.Rows++ },
		"another name":     func(b *lake.Batch) { b.Batch = "~0123456789abcdef" },
		"a batch's name":   func(b *lake.Batch) { b.Batch = "2024" },
		"no members":       func(b *lake.Batch) { b.Members = nil },
		"another order":    func(b *lake.Batch) { b.Members = []lake.Member{members[1], members[0]} },
		"a member's name":  func(b *lake.Batch) { b.Members = []lake.Member{members[0], {Batch: "../x", Rows: 2000}} },
		"a negative count": func(b *lake.Batch) { b.Members = []lake.Member{{Batch: "a", Rows: -1}, {Batch: "b", Rows: 3401}} },
	} {
		b := union()
		change(b)
		if len(b.Members) > 0 && what != "another name" && what != "a batch's name" {
			b.Batch = lake.UnionName(lake.UnionDigest(b.Members, b.Takedowns))
		}
		data, digest, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lake.DecodeBatch(data, lake.BatchKey(1, b.Batch, digest)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestUnionThatLacksRowsIsAsItsPageShows(t *testing.T) {
	ids := []string{"20261120-0f3c9a7152", "20261121-8ab0c51f09"}
	members := []lake.Member{{Batch: "2024-11", Digest: lake.Digest([]byte("a")), Rows: 0, Dropped: 1400}}
	union := func() *lake.Batch {
		return &lake.Batch{
			DatasetID: 1, Batch: lake.UnionName(lake.UnionDigest(members, ids)), CanonicalForm: "urlake-1",
			PublicSuffix: lake.CurrentRules().PublicSuffix, Members: members, Takedowns: ids, Inputs: []lake.Input{},
			Rejected: map[string]int64{}, Parts: []lake.Part{}, Postings: []lake.FrameObject{},
		}
	}
	data, digest, err := union().Encode()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Shows(t, "batch.md", "json drops", string(data))
	if _, err := lake.DecodeBatch(data, lake.BatchKey(1, union().Batch, digest)); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(b *lake.Batch){
		"no takedowns":          func(b *lake.Batch) { b.Takedowns = nil },
		"another order":         func(b *lake.Batch) { b.Takedowns = []string{ids[1], ids[0]} },
		"one twice":             func(b *lake.Batch) { b.Takedowns = []string{ids[0], ids[0]} },
		"an empty id":           func(b *lake.Batch) { b.Takedowns = []string{""} },
		"fewer than none":       func(b *lake.Batch) { b.Members = []lake.Member{{Batch: "2024-11", Dropped: -1}} },
		"of a batch":            func(b *lake.Batch) { b.Members = nil },
		"the name without them": func(b *lake.Batch) { b.Batch = lake.UnionName(lake.UnionDigest(members, nil)) },
	} {
		b := union()
		change(b)
		if what != "the name without them" {
			b.Batch = lake.UnionName(lake.UnionDigest(b.Members, b.Takedowns))
		}
		if what == "of a batch" {
			b.Batch = "2024-11"
		}
		data, digest, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lake.DecodeBatch(data, lake.BatchKey(1, b.Batch, digest)); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
