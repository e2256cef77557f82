mod client;
mod commands;
mod forwarding;
mod hostile;
mod logs;
mod reports;
