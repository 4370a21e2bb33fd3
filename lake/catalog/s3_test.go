package catalog

// Tests of this package open stores in S3.
import _ "github.com/urlake/urlake/lake/blob/s3blob"
