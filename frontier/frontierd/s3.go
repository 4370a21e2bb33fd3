//go:build !nos3

package main

// S3 is linked unless the program is built with the tag nos3; folders work without it.
import _ "github.com/urlake/urlake/lake/blob/s3blob"
