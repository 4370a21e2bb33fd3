package gc

const ReportLife = reportLife

// KindNames are the names of all kinds that a collection deletes.
var KindNames = kindNames[:]
