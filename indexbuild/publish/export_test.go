package publish

// BuildWith is Build with options of the index builder.
var BuildWith = build
