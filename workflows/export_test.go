package workflows

func init() { attempts = 1 << 30 }
