//! Workloads, measurement, report.
