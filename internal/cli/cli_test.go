package cli

import (
	"errors"
	"testing"
)

func TestLakeHasOneSpelling(t *testing.T) {
	for lake, want := range map[string]string{
		"/data/lake":            "file:///data/lake",
		"/data/lake/":           "file:///data/lake",
		"/data/../lake":         "file:///lake",
		"file:///data/lake/":    "file:///data/lake",
		"FILE:///data/lake":     "file:///data/lake",
		"/data/a%20b":           "file:///data/a%2520b",
		"/data/a b":             "file:///data/a%20b",
		"file:///data/a%20b":    "file:///data/a%20b",
		"/data/a#b?c":           "file:///data/a%23b%3Fc",
		"s3://bucket/prefix/":   "s3://bucket/prefix",
		"S3://bucket":           "s3://bucket",
		"s3://bucket/a/b/c%20d": "s3://bucket/a/b/c%20d",
	} {
		if got, err := LakeURL(lake); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", lake, got, err, want)
		}
	}
	for _, lake := range []string{"", "gs://bucket/x", "s3://", "s3:///", "file:/x", "file://host/x", "file:///x?y", "http://x/"} {
		var usage *UsageError
		if got, err := LakeURL(lake); !errors.As(err, &usage) {
			t.Errorf("%q: %q, %v; want wrong usage", lake, got, err)
		}
	}
}
