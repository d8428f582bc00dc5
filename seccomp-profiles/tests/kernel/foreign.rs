//! Programs of a few instructions that call the kernel through another ABI.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use libtest_mimic::Failed;
use nix::libc::{ENOSYS, SIGSEGV, SIGSYS};

use crate::{Outcome, run_both};

/// Where the one segment of the program is mapped.
const BASE: u64 = 0x40_0000;
const HEADERS: u64 = 64 + 56;

/// A static 64-bit program that is nothing but `code`.
fn program(code: &[u8]) -> Result<tempfile::TempPath, Failed> {
    let mut elf = Vec::new();
    elf.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    elf.extend([2u16, 62].map(u16::to_le_bytes).concat()); // ET_EXEC, EM_X86_64
    elf.extend(1u32.to_le_bytes());
    elf.extend([BASE + HEADERS, 64, 0].map(u64::to_le_bytes).concat()); // entry, program headers, no sections
    elf.extend(0u32.to_le_bytes());
    elf.extend([64u16, 56, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
    elf.extend([1u32, 5].map(u32::to_le_bytes).concat()); // PT_LOAD, read and execute
    let length = HEADERS + code.len() as u64;
    elf.extend(
        [0, BASE, BASE, length, length, 0x1000]
            .map(u64::to_le_bytes)
            .concat(),
    );
    elf.extend(code);

    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(&elf)?;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o700))?;
    Ok(file.into_temp_path())
}

fn run(code: &[u8]) -> Result<(Outcome, Outcome), Failed> {
    let path = program(code)?;
    let path = path.to_str().ok_or("a temporary path that is not text")?;
    Ok(run_both(path)?)
}

pub fn int_80() -> Result<(), Failed> {
    let code = [
        0xb8, 20, 0, 0, 0, // mov eax, 20: getpid of i386
        0xcd, 0x80, // int 0x80
        0x31, 0xff, // xor edi, edi
        0xb8, 231, 0, 0, 0, // mov eax, 231: exit_group
        0x0f, 0x05, // syscall
    ];
    let (control, confined) = run(&code)?;
    match (control.code, control.signal, confined.signal) {
        (Some(0), _, Some(SIGSYS)) => Ok(()),
        // A kernel without the i386 ABI refuses by itself.
        (None, Some(SIGSEGV), Some(SIGSEGV)) => Ok(()),
        _ => Err(format!("without filters {control:?}, with them {confined:?}").into()),
    }
}

pub fn x32() -> Result<(), Failed> {
    let code = [
        0xb8, 39, 0, 0, 0x40, // mov eax, 0x40000027: getpid of x32
        0x0f, 0x05, // syscall
        0xf7, 0xd8, // neg eax
        0x89, 0xc7, // mov edi, eax
        0xb8, 231, 0, 0, 0, // mov eax, 231: exit_group
        0x0f, 0x05, // syscall
    ];
    let (control, confined) = run(&code)?;
    if control.code.is_some() && confined.code == Some(ENOSYS) {
        return Ok(());
    }
    Err(format!("without filters {control:?}, with them {confined:?}").into())
}
