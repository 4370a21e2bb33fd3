//go:build soak

package s3blob_test

func init() { lives = 20 }
