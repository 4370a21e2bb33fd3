package urlnorm
import "testing"
func sharedInputs(tb testing.TB) []string { return nil }
