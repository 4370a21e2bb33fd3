package workflows

import (
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
)

type (
	activityInfo = activity.Info
	encodedValue = converter.EncodedValue
)

func histories(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	return files
}
